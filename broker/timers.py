"""Deadlines of a core: set, moved and cancelled by key; a heap with lazy deletion."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

K = TypeVar("K")
_SLACK: Final = 64


class Timers(Generic[K]):
    """At most one deadline a key (monotonic seconds). All operations are O(log n) amortised."""

    def __init__(self) -> None:
        """Start with none."""
        self._when: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0

    def set(self, key: K, when_s: float) -> None:
        """Set or move the deadline of `key`."""
        if self._when.get(key) == when_s:
            return
        self._when[key] = when_s
        self._count += 1
        heapq.heappush(self._heap, (when_s, self._count, key))
        if len(self._heap) > 2 * len(self._when) + _SLACK:
            # Leases move at every heartbeat; without this the stale entries would pile up.
            self._heap = [(when, n, key) for n, (key, when) in enumerate(self._when.items())]
            heapq.heapify(self._heap)
            self._count = len(self._heap)

    def cancel(self, key: K) -> None:
        """Forget the deadline of `key`, if there is one."""
        self._when.pop(key, None)

    def when_s(self, key: K) -> float | None:
        """Return the deadline of `key`, or none."""
        return self._when.get(key)

    def __contains__(self, key: K) -> bool:
        return key in self._when

    def __iter__(self) -> Iterator[K]:
        return iter(self._when)

    def next_deadline(self) -> float | None:
        """Return the earliest deadline, or none."""
        while self._heap and self._when.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now_s: float) -> list[K]:
        """Remove and return the keys whose deadline has come, earliest first."""
        keys: list[K] = []
        while (when_s := self.next_deadline()) is not None and when_s <= now_s:
            _, _, key = heapq.heappop(self._heap)
            del self._when[key]
            keys.append(key)
        return keys
