"""Calls that may hang, on daemon threads: a hanging disk costs a thread, and stops nothing."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Final, Generic, TypeVar

ANSWER_S: Final = 10.0  # for which a disk is waited for, or a network's one
SOON_S: Final = 0.1  # the same, by a thread that has more to do
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


class Looks(Generic[T]):
    """Polls something that may hang, for a thread that must not wait."""

    def __init__(
        self, look: Callable[[], T], every_s: float, aside: Aside, soon_s: float = SOON_S
    ) -> None:
        """Share `aside` with other users of the same disk; wait `soon_s` for a new look."""
        self.due_s = 0.0  # when to look again (monotonic)
        self._look = look
        self._every_s = every_s
        self._aside = aside
        self._soon_s = soon_s
        self._answer: Future[T] | None = None
        self._hangs_since_s: float | None = None

    def take(self, mono_s: float) -> T | None:
        """Return what was seen, once; none while there is nothing new; raise what it raises."""
        is_due, wait_s = mono_s >= self.due_s, 0.0
        if is_due:
            self.due_s = mono_s + self._every_s
        if self._answer is None:
            if not is_due:
                return None
            with contextlib.suppress(TimeoutError):
                self._answer, wait_s = self._aside.do(self._look), self._soon_s
        if self._answer is None or not wait([self._answer], wait_s).done:
            self._check_patience(mono_s)
            return None
        answer, self._answer, self._hangs_since_s = self._answer, None, None
        return answer.result()

    def again(self) -> None:
        """Look again at once; what is being seen does not count."""
        self._answer, self.due_s = None, 0.0

    def _check_patience(self, mono_s: float) -> None:
        if self._hangs_since_s is None:
            self._hangs_since_s = mono_s
        if mono_s - self._hangs_since_s >= ANSWER_S:
            raise TimeoutError(f"no answer in {ANSWER_S:g} s")
