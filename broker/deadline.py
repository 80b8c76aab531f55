"""Work that knows no deadline, on a thread that is left to itself when it takes too long.

A disk that hangs, or one of a network that is away, does not refuse: it says nothing. What asks it
holds that thread, and nothing else; it is a daemon, since a program that ends cannot wait for it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

_AHEAD: Final = 8  # steps that may be done before somebody takes them
T = TypeVar("T")


def within(timeout_s: float, function: Callable[[], T]) -> T:
    """Return what a function returns. Raises `TimeoutError`, or what the function raises."""
    return next(paced(timeout_s, (function() for _ in range(1))))


def paced(timeout_s: float, steps: Iterator[T]) -> Iterator[T]:
    """Yield what an iterator yields, of which each step may take so long.

    Raises `TimeoutError`, or what the iterator raises.
    """
    done: queue.Queue[tuple[T] | Exception | None] = queue.Queue(_AHEAD)

    def run() -> None:
        try:
            for one in steps:
                done.put((one,))
            done.put(None)
        except Exception as error:  # noqa: BLE001 - it is raised where somebody waits
            done.put(error)

    threading.Thread(target=run, name="fleet-deadline", daemon=True).start()
    while True:
        try:
            answer = done.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError(f"no answer in {timeout_s:g} s") from None
        if answer is None:
            return
        if isinstance(answer, Exception):
            raise answer
        yield answer[0]
