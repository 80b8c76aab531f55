"""RangeSet against a set of integers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.stream.ranges import RangeSet

operations = st.lists(st.tuples(st.booleans(), st.integers(0, 60), st.integers(0, 60)), max_size=40)


@given(operations, st.integers(0, 70), st.integers(1, 10))
def test_it_is_a_set(moves: list[tuple[bool, int, int]], stop: int, limit: int) -> None:
    ours, theirs = RangeSet(), set[int]()
    for add, start, end in moves:
        (ours.add if add else ours.discard)(start, end)
        (theirs.update if add else theirs.difference_update)(range(start, end))
    assert {number for number in range(70) if number in ours} == theirs
    assert ours.count() == len(theirs)
    assert bool(ours) == bool(theirs)
    assert (ours.first_range() or (None,))[0] == min(theirs, default=None)
    ranges = list(ours)
    assert all(a < b for a, b in ranges)
    assert all(ranges[i][1] < ranges[i + 1][0] for i in range(len(ranges) - 1)), "adjacent ranges"
    assert RangeSet(ranges) == ours

    missing = ours.gaps(0, stop, limit)
    assert len(missing) <= limit
    named = {number for a, b in missing for number in range(a, b)}
    horizon = stop if len(missing) < limit else missing[-1][1]
    assert named == {number for number in range(horizon) if number not in theirs}
