"""How long training took is what the agent has measured, as far as that can be."""

from __future__ import annotations

from contextlib import closing

import pytest

from broker.protocol.messages import Failed, Finished, JobRow, Released, Stopped, Why
from coordinator.client.mirror import Going
from coordinator.client.rows import job_row, listed, took_s
from coordinator.core.effects import PartStored
from coordinator.faces.metrics import Tally
from coordinator.jobs.jobs import Change
from coordinator.jobs.states import Event, JobState
from coordinator.ledger.ledger import Ledger
from tests.harness.coordinator import HEX, Fleet, Host, spec


def trained(ran_s: float | None, wait_s: float = 900.0) -> tuple[Fleet, Host]:
    """A job was trained for ten minutes, and its host was offline for a while; then it reports."""
    fleet = Fleet(spec())
    host = fleet.host().joins()
    job = host.runs()
    for _ in range(20):
        fleet.passes(30.0)
        host.beats((job.job_id, 1, "running"))
    host.status("offline", "lost")
    fleet.passes(wait_s)
    host.returns((job.job_id, 1, "reporting"))
    host.reports(
        Finished, fleet.job(), artifact_id=HEX, size_bytes=2000, metrics={}, ran_s=ran_s
    )  # fmt: skip
    for _ in range(4):  # the upload takes its time
        fleet.passes(25.0)
        host.beats((job.job_id, 1, "uploading"))
    fleet.handle(PartStored(HEX, 2000))
    return fleet, host


def row_of(fleet: Fleet) -> JobRow:
    """The job's row as everybody is sent it last."""
    return next(said for topic, said in reversed(fleet.sent) if isinstance(said, JobRow))


def ended(fleet: Fleet, event: Event) -> Change:
    return next(one for one in reversed(fleet.changes) if one.event is event)


@pytest.mark.parametrize(("wait_s", "is_lost"), [(60.0, False), (9000.0, True)])
def test_a_wait_for_the_report_is_no_training(wait_s: float, is_lost: bool) -> None:
    """In the history, in the row of list, show, top and the web page, and in the histogram.

    Whether the attempt was taken for lost meanwhile or not.
    """
    fleet, _ = trained(590.0, wait_s)
    assert (("job", "lost") in fleet.history) is is_lost
    row = row_of(fleet)
    assert ended(fleet, Event.COMPLETED).ran_s == 590.0
    assert (row.state, row.ran_s) == ("completed", 590.0)
    assert took_s(job_row(row, Going()), fleet.now.wall_s) == 590.0
    assert took_s(listed(row.model_dump(), 0.0), fleet.now.wall_s) == 590.0
    tally = Tally()
    tally.on_commit([ended(fleet, Event.COMPLETED)], 0.001)
    assert [one.value for one in tally.durations.collect()[0].samples][-1] == 590.0
    assert row.finished_at == fleet.now.text(), "the job is over when that is known"


@pytest.mark.parametrize(
    ("said_s", "told_s"),
    [
        (None, None),
        (-1.0, None),  # no duration at all: counted as it was before
        (0.0, 0.0),
        (1e300, 1600.0),  # since it was given out, and no longer
    ],
)
def test_what_cannot_be_is_not_believed(said_s: float | None, told_s: float | None) -> None:
    """The job is completed whatever the figure."""
    fleet, _ = trained(said_s)
    assert fleet.job().state is JobState.COMPLETED
    assert fleet.job().ran_s == told_s


def test_after_a_restart_a_trainer_ran_no_longer_than_its_job_is_there() -> None:
    fleet = Fleet(spec())
    fleet.passes(50.0)
    host = fleet.host().joins()
    job = host.runs()
    fleet.passes(500.0)
    fleet.start()
    host.joins((job.job_id, 1, "running"))
    host.reports(Failed, fleet.job(), error="e", transient=False, ran_s=9999.0)
    assert fleet.job().ran_s == 550.0


@pytest.mark.parametrize(("passed_s", "skew_s"), [(100.0, -1e6), (0.0, 100.0)])
def test_neither_a_clock_that_was_set_back_nor_sleep_takes_anything_away(
    passed_s: float, skew_s: float
) -> None:
    """While the coordinator's machine sleeps, its monotonic clock may stand still."""
    fleet = Fleet(spec())
    host = fleet.host().joins()
    host.runs()
    fleet.passes(passed_s)
    fleet.skew_s = skew_s
    host.reports(Failed, fleet.job(), error="e", transient=False, ran_s=90.0)
    assert fleet.job().ran_s == 90.0


def test_an_attempt_that_ends_otherwise_says_how_long_it_ran() -> None:
    """Failed and tried again, given back, stopped by another coordinator: the history has it."""
    fleet = Fleet(spec())
    host = fleet.host().joins()
    for kind, more, event in (
        (Failed, {"error": "e"}, Event.RETRIED),
        (Released, {"why": Why(code="leaving")}, Event.RELEASED),
        (Stopped, {"request_id": "q"}, Event.RELEASED),
    ):
        job = host.runs()
        fleet.passes(20.0)
        host.reports(kind, job, ran_s=float(job.attempt), **more)
        assert ended(fleet, event).ran_s == job.attempt
        assert fleet.job().ran_s is None, "it is over, and the job is not"
        fleet.passes(2000.0)
        host.session += "-"
        host.joins()


def test_the_ledger_keeps_what_a_job_took() -> None:
    fleet, _ = trained(590.0)
    with closing(Ledger(":memory:")) as ledger:
        ledger.commit(fleet.changes)
        (job,) = ledger.load().values()
        *before, last = [(one["event"], one["ran_s"]) for one in ledger.events(job.job_id)]
    assert (job.ran_s, last) == (590.0, ("completed", 590.0))
    assert {ran_s for _, ran_s in before} == {None}
