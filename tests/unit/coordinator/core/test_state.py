"""Rows of jobs on the broker: of many at once most follow later, and all of them come."""

from __future__ import annotations

from collections import Counter

from broker.protocol.topic_table import Kind
from coordinator.core.state import ROWS_AT_ONCE, ROWS_EVERY_S
from tests.harness.coordinator import Fleet, spec


def rows(fleet: Fleet) -> Counter[str]:
    """Take the rows that were published, and count them by job and state."""
    found = Counter(f"{said.name} {said.state}" for topic, said in fleet.sent if is_row(topic))
    fleet.sent = [one for one in fleet.sent if not is_row(one[0])]
    return found


def is_row(topic: object) -> bool:
    """Whether something was published about a job."""
    return getattr(topic, "kind", None) is Kind.JOB


def test_a_large_plan_is_published_little_by_little() -> None:
    """No more at once than a broker takes, and none is left out."""
    jobs = [spec(f"job-{number}", seed=number) for number in range(2 * ROWS_AT_ONCE + 7)]
    fleet = Fleet(*jobs)
    fleet.passes(ROWS_EVERY_S)
    assert rows(fleet).total() == ROWS_AT_ONCE
    fleet.passes(60)
    assert rows(fleet).total() == ROWS_AT_ONCE + 7
    fleet.start()
    fleet.passes(ROWS_EVERY_S)
    assert rows(fleet).total() == ROWS_AT_ONCE
    fleet.passes(60)
    assert set(rows(fleet).values()) == {1}


def test_a_job_that_moves_before_its_row_was_published_is_published_as_it_is() -> None:
    jobs = [spec(f"job-{number}", seed=number) for number in range(ROWS_AT_ONCE + 1)]
    last = spec("last", priority=9)
    fleet = Fleet(*jobs, last)
    assert not rows(fleet)["last pending"], "it is among those that follow"
    fleet.host().joins()
    fleet.passes(5)
    found = rows(fleet)
    assert found["last claimed"] >= 1
    assert not found["last pending"]
