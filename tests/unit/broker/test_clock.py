"""Timers against a dictionary of deadlines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.clock import Timers

moves = st.lists(
    st.tuples(st.sampled_from(["set", "cancel", "due"]), st.integers(0, 8), st.integers(0, 50)),
    max_size=200,
)


@given(moves)
def test_they_come_due_in_order_and_once(steps: list[tuple[str, int, int]]) -> None:
    ours: Timers[int] = Timers()
    theirs: dict[int, float] = {}
    for what, key, when in steps:
        if what == "set":
            ours.set(key, when)
            theirs[key] = when
        elif what == "cancel":
            ours.cancel(key)
            theirs.pop(key, None)
        else:
            due = ours.due(when)
            expected = {key for key, at in theirs.items() if at <= when}
            assert set(due) == expected
            assert [theirs[key] for key in due] == sorted(theirs[key] for key in due)
            for one in due:
                del theirs[one]
        assert ours.next_deadline() == min(theirs.values(), default=None)
        assert all((key in ours) == (key in theirs) for key in range(9))


def test_moving_a_deadline_for_ever_costs_no_memory() -> None:
    """A lease moves at every heartbeat for months."""
    timers: Timers[str] = Timers()
    for second in range(10_000):
        timers.set("lease", float(second))
    assert len(timers._heap) < 200
