"""A set of integers kept as half-open ranges: which chunks are there, which are missing."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(init=False)
class RangeSet:
    """Sorted, disjoint, never adjacent half-open ranges, whatever the order of calls."""

    _starts: list[int]
    _stops: list[int]

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        """Start with the union of `ranges`; each is (start, stop) with start <= stop."""
        self._starts, self._stops = [], []
        for start, stop in ranges:
            self.add(start, stop)

    def add(self, start: int, stop: int) -> None:
        """Add every integer from `start` up to, and without, `stop`."""
        if start >= stop:
            return
        first = bisect_left(self._stops, start)  # the first range that touches or follows
        last = bisect_right(self._starts, stop)  # one past the last range that touches
        if first < last:
            start = min(start, self._starts[first])
            stop = max(stop, self._stops[last - 1])
        self._starts[first:last] = [start]
        self._stops[first:last] = [stop]

    def discard(self, start: int, stop: int) -> None:
        """Remove every integer from `start` up to, and without, `stop`, where it is in the set."""
        if start >= stop:
            return
        first = bisect_right(self._stops, start)
        last = bisect_left(self._starts, stop)
        if first >= last:
            return
        left, right = self._starts[first], self._stops[last - 1]
        kept = [(a, b) for a, b in ((left, start), (stop, right)) if a < b]
        self._starts[first:last] = [a for a, _ in kept]
        self._stops[first:last] = [b for _, b in kept]

    def __contains__(self, number: int) -> bool:
        return self.overlaps(number, number + 1)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._starts, self._stops, strict=True)))

    def __bool__(self) -> bool:
        return bool(self._starts)

    def count(self) -> int:
        """Return how many integers are in the set."""
        return sum(self._stops) - sum(self._starts)

    def first_range(self) -> tuple[int, int] | None:
        """Return the lowest range, or none."""
        return (self._starts[0], self._stops[0]) if self._starts else None

    def overlaps(self, start: int, stop: int) -> bool:
        """Whether any integer from `start` up to, and without, `stop` is in the set."""
        at = bisect_right(self._stops, start)
        return at < len(self._starts) and self._starts[at] < stop

    def gaps(self, start: int, stop: int, limit: int | None = None) -> list[tuple[int, int]]:
        """Return the ranges of [start, stop) that are not in the set, the lowest `limit`."""
        found: list[tuple[int, int]] = []
        edge, at = start, bisect_right(self._stops, start)
        while edge < stop and len(found) != limit:
            is_last = at == len(self._starts) or self._starts[at] >= stop
            if is_last:
                found.append((edge, stop))
                return found
            if self._starts[at] > edge:
                found.append((edge, self._starts[at]))
            edge = self._stops[at]
            at += 1
        return found
