"""A set of integers kept as half-open ranges: which chunks are there, which are missing."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class RangeSet:
    """Sorted, disjoint, never adjacent half-open ranges. Adding and asking are O(log n) and a move.

    The order of calls does not matter: equal sets have equal ranges.
    """

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        """Start with the union of `ranges`; each is (start, stop) with start <= stop."""
        self._starts: list[int] = []
        self._stops: list[int] = []
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
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._stops[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._starts, self._stops, strict=True)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RangeSet):
            return NotImplemented
        return self._starts == other._starts and self._stops == other._stops

    __hash__ = None  # type: ignore[assignment] # mutable

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"

    def count(self) -> int:
        """Return how many integers are in the set."""
        return sum(self._stops) - sum(self._starts)

    def first(self) -> int | None:
        """Return the smallest integer in the set, or none."""
        return self._starts[0] if self._starts else None

    def first_range(self) -> tuple[int, int] | None:
        """Return the lowest range, or none."""
        return (self._starts[0], self._stops[0]) if self._starts else None

    def overlaps(self, start: int, stop: int) -> bool:
        """Whether any integer from `start` up to, and without, `stop` is in the set."""
        at = bisect_right(self._stops, start)
        return at < len(self._starts) and self._starts[at] < stop

    def gaps(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the ranges of [start, stop) that are not in the set, lowest first."""
        if not self.overlaps(start, stop):
            return [(start, stop)] if start < stop else []
        left = RangeSet([(start, stop)])
        for at in range(bisect_right(self._stops, start), bisect_left(self._starts, stop)):
            left.discard(self._starts[at], self._stops[at])
        return list(left)

    def missing(self, stop: int, limit: int) -> list[tuple[int, int]]:
        """Return the first `limit` ranges of [0, stop) that are not in the set, lowest first."""
        found: list[tuple[int, int]] = []
        edge = 0
        for start, end in zip(self._starts, self._stops, strict=True):
            if edge >= stop or len(found) == limit:
                return found
            if start > edge:
                found.append((edge, min(start, stop)))
            edge = max(edge, end)
        if edge < stop and len(found) < limit:
            found.append((edge, stop))
        return found
