"""Time as a value, deadlines by key, and how waits grow (`backoff_s`): a core reads no clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Generic, Protocol, TypeVar

# The time as it is handed to the cores: a value, never a call.


@dataclass(frozen=True, slots=True)
class Now:
    """One instant, told by two clocks.

    `mono_s` (seconds, monotonic, arbitrary origin) measures durations; `wall_s` (seconds since the
    Unix epoch) is for people and may jump either way.
    """

    mono_s: float
    wall_s: float

    def text(self) -> str:
        """Return the wall clock as RFC 3339 in UTC, to the millisecond."""
        return rfc3339(self.wall_s)


Clock = Callable[[], Now]


class Randomness(Protocol):
    """The only randomness that a core may draw from: handed in, so that tests control it."""

    def random(self) -> float:
        """Return a float in [0, 1)."""
        ...


@lru_cache(maxsize=8)  # many rows of one turn have the same time
def rfc3339(wall_s: float) -> str:
    """Return seconds since the epoch as RFC 3339 in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(wall_s, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds_of(text: str | None) -> float | None:
    """Return an RFC 3339 time in seconds since the epoch; none for what is no time."""
    try:
        return datetime.fromisoformat(text or "").timestamp()
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def until(text: str | None, now: Now) -> float:
    """Return how many seconds an RFC 3339 time is ahead of the wall clock; 0 if it is past."""
    return max(0.0, (seconds_of(text) or 0.0) - now.wall_s)


def earliest(*when_s: float | None) -> float | None:
    """Return the first of some deadlines; none when there is none."""
    known = [one for one in when_s if one is not None]
    return min(known) if known else None


def backoff_s(failures: int, base_s: float, cap_s: float, rng: Randomness) -> float:
    """Return the wait after `failures` failures in a row: exponential, half of it jitter."""
    ceiling_s = min(cap_s, base_s * 2.0 ** min(failures, 32))
    return ceiling_s * (0.5 + 0.5 * rng.random())


K = TypeVar("K")
_SLACK: Final = 64


class Timers(Generic[K]):
    """At most one deadline a key (monotonic seconds). All operations are O(log n) amortised."""

    def __init__(self) -> None:
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
        heap = self._heap
        while heap and self._when.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now_s: float) -> list[K]:
        """Remove and return the keys whose deadline has come, earliest first."""
        keys: list[K] = []
        if not self._heap or self._heap[0][0] > now_s:
            return keys  # as most often
        while (when_s := self.next_deadline()) is not None and when_s <= now_s:
            _, _, key = heapq.heappop(self._heap)
            del self._when[key]
            keys.append(key)
        return keys
