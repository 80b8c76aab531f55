"""Work on a thread of its own, which is asked for more often than it can be done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class Coalesced:
    """Does what it is asked for, one at a time; of all that waits, the newest alone.

    What has not begun yet tells all that an older one would have told.
    """

    def __init__(self, name: str) -> None:
        """Start nothing yet; `name` is the thread's."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._waiting: Callable[[], object] | None = None

    def ask(self, work: Callable[[], object]) -> None:
        """Have `work` done next, in place of what waits."""
        with self._lock:
            waits, self._waiting = self._waiting is not None, work
        if not waits:
            self._pool.submit(self._work)

    def close(self) -> None:
        """Begin nothing any more; what is under way is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _work(self) -> None:
        with self._lock:
            work, self._waiting = self._waiting, None
        if work is not None:
            work()
