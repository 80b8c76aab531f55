"""Calls that may hang, on daemon threads: a hanging disk costs a thread, and stops nothing."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Final, TypeVar

ANSWER_S: Final = 10.0  # for which a disk is waited for, or a network's one
_AHEAD: Final = 8  # steps that may be done before somebody takes them
T = TypeVar("T")


def within(timeout_s: float, function: Callable[[], T]) -> T:
    """Return what a function returns. Raises `TimeoutError`, or what the function raises."""
    return next(paced(timeout_s, (function() for _ in range(1))))


def paced(timeout_s: float, steps: Iterator[T]) -> Iterator[T]:
    """Yield what an iterator yields; raises `TimeoutError` when a step takes longer."""
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


class Aside:
    """Runs calls that may hang on another thread, one at a time."""

    def __init__(self) -> None:
        self._free = threading.Lock()

    def do(self, work: Callable[[], T], wait_s: float = 0.0) -> Future[T]:
        """Begin `work`. Raises `TimeoutError` while what was begun before hangs for `wait_s`."""
        if not self._free.acquire(timeout=wait_s):
            raise TimeoutError("what was begun before is not done yet")
        answer: Future[T] = Future()

        def run() -> None:
            try:
                try:
                    result = work()
                finally:
                    self._free.release()
            except Exception as error:  # noqa: BLE001 - it is raised where somebody waits
                answer.set_exception(error)
            else:
                answer.set_result(result)

        threading.Thread(target=run, name="fleet-aside", daemon=True).start()
        return answer
