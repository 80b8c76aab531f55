"""The one timeline of a simulation: what happens when, in an order that the seed decides."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Timeline:
    """Calls, in order of their time; those of one time in the order in which they were asked."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        """Have `call` called in a while."""
        self._count += 1
        heapq.heappush(self._heap, (self.now_s + delay_s, self._count, call))

    @property
    def steps(self) -> int:
        """How many calls have been made."""
        return self._count - len(self._heap)

    def run(self, until_s: float, stop: Callable[[], bool] | None = None) -> None:
        """Go on until a time, or until `stop` says so."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= until_s:
            self.now_s, _, call = pop(heap)
            call()
            if stop is not None and stop():
                return
        self.now_s = max(self.now_s, until_s)
