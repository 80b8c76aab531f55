"""Attempts that have ended, as the ledger's events tell them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.clock import Now
from broker.protocol.messages import AskAttempts
from coordinator.jobs.causes import NONE, Cause, cause
from coordinator.jobs.jobs import Job, JobBook
from coordinator.jobs.states import Event
from coordinator.ledger.ledger import Ledger
from tests.harness.coordinator import HEX, spec

T0 = 1.8e9


class Past:
    """A ledger in memory, and jobs that are moved as time passes."""

    def __init__(self) -> None:
        self.ledger, self.book, self.wall_s = Ledger(":memory:"), JobBook(), T0

    def add(self, name: str = "job") -> Job:
        job = self.book.add(spec(name), self.now, "operator")
        self.ledger.commit(self.book.take_changes())
        return job

    @property
    def now(self) -> Now:
        return Now(1.0, self.wall_s)

    def then(self, job: Job, event: Event, after_s: float = 0.0, **more: Any) -> Job:
        """Something happens to a job, so many seconds later."""
        self.wall_s += after_s
        why = more.pop("why", "")
        moved = self.book.move(job, event, self.now, "test", why, **more)
        self.ledger.commit(self.book.take_changes())
        return moved

    def begins(self, job: Job, host: str = "pi", why: Cause = NONE) -> Job:
        """It is assigned, and starts a second later."""
        job = self.then(job, Event.ASSIGNED, host=host, attempt=job.attempt + 1, why=why)
        return self.then(job, Event.STARTED, 1.0, started_at=self.now.text())

    def completes(self, job: Job, after_s: float) -> Job:
        """It is completed, so many seconds after that."""
        return self.then(job, Event.COMPLETED, after_s, artifact_id=HEX)

    def told(self, **wanted: Any) -> list[tuple[Any, ...]]:
        """(host, how it ended, how long it ran, whether in one go), newest first."""
        attempts = self.page(**wanted)["attempts"]
        return [(one["host"], one["end"], one["s"], one["whole"]) for one in attempts]

    def page(self, **wanted: Any) -> Any:
        """A page of attempts, as an operator is told of it."""
        return self.ledger.attempts(AskAttempts(id="a", **wanted))


@pytest.fixture
def past() -> Any:
    made = Past()
    yield made
    made.ledger.close()


def test_a_completed_attempt_has_a_host_and_a_duration(past: Past) -> None:
    """From the trainer's start, or as measured: its host may be offline for an hour afterwards."""
    past.completes(past.begins(past.add()), 80.0)
    past.then(past.begins(past.add("b")), Event.COMPLETED, 3690.0, artifact_id=HEX, ran_s=90.0)
    assert past.told() == [("pi", "completed", 90.0, True), ("pi", "completed", 80.0, True)]


def test_every_attempt_of_a_job_is_told(past: Past) -> None:
    """Lost on one host, failed on the next, completed at last; each at its own host."""
    job = past.then(past.begins(past.add(), "a"), Event.LOST, 10.0)
    job = past.then(past.begins(job, "b"), Event.RETRIED, 20.0, host=None)
    past.completes(past.begins(job, "c"), 30.0)
    assert past.told() == [
        ("c", "completed", 30.0, True), ("b", "failed", 20.0, True), ("a", "lost", 10.0, True)
    ]  # fmt: skip


def test_hours_are_not_told_twice(past: Past) -> None:
    """An attempt that was taken for lost and goes on after all counts what it ran since."""
    job = past.then(past.begins(past.add()), Event.LOST, 100.0)
    job = past.then(job, Event.RESUMED, 5.0, host="pi", attempt=1)
    past.completes(job, 40.0)
    assert past.told() == [("pi", "completed", 40.0, False), ("pi", "lost", 100.0, True)]


def test_a_result_that_comes_late_brings_no_hours(past: Past) -> None:
    """The job was pending again: they were told when it was taken back."""
    job = past.then(past.begins(past.add()), Event.LOST, 100.0)
    past.then(job, Event.COMPLETED, 50.0, artifact_id=HEX, host="pi")
    assert past.told() == [("pi", "completed", None, False), ("pi", "lost", 100.0, True)]


def test_an_attempt_that_was_measured_is_told_once(past: Past) -> None:
    """Taken for lost meanwhile, there again, and once more: all that it ran is told with its end.

    So it is a measure of how long such a job takes.
    """
    job = past.begins(past.add())
    for _ in range(2):
        job = past.then(job, Event.LOST, 600.0)
        job = past.then(job, Event.RESUMED, 5.0, host="pi", attempt=1)
    past.then(job, Event.COMPLETED, 1.0, artifact_id=HEX, ran_s=90.0)
    assert past.told() == [
        ("pi", "completed", 90.0, True), ("pi", "lost", None, False), ("pi", "lost", None, True)
    ]  # fmt: skip


def test_a_late_failure_that_was_measured_brings_its_hours(past: Past) -> None:
    """The job was pending again, and is tried again."""
    job = past.then(past.begins(past.add()), Event.LOST, 600.0)
    job = past.then(job, Event.RETRIED, 50.0, host=None, attempt=1, ran_s=30.0)
    past.completes(past.begins(job, "b"), 7.0)
    assert past.told() == [
        ("b", "completed", 7.0, True), ("pi", "failed", 30.0, True), ("pi", "lost", None, True)
    ]  # fmt: skip


def test_a_result_that_is_kept_says_how_long_the_lost_attempt_ran(past: Past) -> None:
    """Until it is taken: then it is a completed attempt that says it."""
    job = past.then(past.begins(past.add()), Event.EXHAUSTED, 600.0, error="lost")
    job = past.then(job, Event.KEPT, 60.0, artifact_id=HEX, ran_s=90.0)
    assert past.told() == [("pi", "lost", 90.0, True)]
    job = past.then(job, Event.REQUEUED, 5.0, host=None)
    past.then(job, Event.COMPLETED, artifact_id=HEX, host="pi", ran_s=90.0)
    assert past.told() == [("pi", "completed", 90.0, True), ("pi", "lost", None, True)]


def test_a_checkpoint_that_comes_late_says_how_long_the_attempt_ran(past: Past) -> None:
    """It was lost by that time, and goes on as another attempt."""
    job = past.then(past.begins(past.add()), Event.LOST, 600.0)
    job = past.then(job, Event.CHANGED, 60.0, ran_s=90.0)
    past.completes(past.begins(job, why=cause("resumes", resumed_from=1)), 7.0)
    assert past.told() == [("pi", "completed", 7.0, False), ("pi", "lost", 90.0, True)]


def test_what_goes_on_from_a_checkpoint_is_not_whole(past: Past) -> None:
    """So it is no measure of how long such a job takes."""
    job = past.then(past.begins(past.add()), Event.RELEASED, 60.0, host=None)
    past.completes(past.begins(job, why=cause("resumes", resumed_from=1)), 7.0)
    assert past.told(ends=("completed",)) == [("pi", "completed", 7.0, False)]


def test_a_host_that_was_at_the_job_before_may_have_kept_some_of_it(past: Past) -> None:
    """What it takes after a loss is no measure, until a requeue has the job trained anew."""
    job = past.then(past.begins(past.add()), Event.LOST, 600.0)
    job = past.then(past.begins(job, "lab"), Event.LOST, 600.0)
    job = past.completes(past.begins(job), 7.0)
    job = past.then(job, Event.REQUEUED, 50.0, host=None)
    past.completes(past.begins(job), 610.0)
    assert past.told() == [
        ("pi", "completed", 610.0, True), ("pi", "completed", 7.0, False),
        ("lab", "lost", 600.0, True), ("pi", "lost", 600.0, True),
    ]  # fmt: skip


def test_a_cancelled_job_is_told_with_its_host_only_if_it_had_one(past: Past) -> None:
    past.then(past.add("a"), Event.CANCELLED)
    past.then(past.begins(past.add("b")), Event.CANCELLED, 8.0)
    job = past.then(past.begins(past.add("c")), Event.LOST, 3.0)
    past.then(job, Event.CANCELLED, 1000.0)
    assert past.told(ends=("cancelled",)) == [
        (None, "cancelled", None, False), ("pi", "cancelled", 8.0, True),
        (None, "cancelled", None, False),
    ]  # fmt: skip


def test_a_requeue_of_what_is_over_ends_no_attempt(past: Past) -> None:
    job = past.completes(past.begins(past.add()), 5.0)
    job = past.begins(past.then(job, Event.REQUEUED, 50.0, host=None), "b")
    past.then(job, Event.REQUEUED, 6.0, host=None)
    assert past.told() == [("b", "cancelled", 6.0, True), ("pi", "completed", 5.0, True)]


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_pages_tell_everything_once(past: Past, limit: int) -> None:
    """Newest first, whatever the size of a page."""
    for number in range(6):
        past.completes(past.begins(past.add(f"j{number}")), float(number + 1))
    found: list[float] = []
    before: Any = None
    pages = 0
    while pages == 0 or before is not None:
        page = past.page(before=before, limit=limit)
        assert len(page["attempts"]) <= limit
        found += [one["s"] for one in page["attempts"]]
        before, pages = page["next"], pages + 1
        assert pages < 50
    assert found == [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]


def test_since_leaves_out_what_ended_before(past: Past) -> None:
    """And the last page says that it is the last, however long the past is."""
    past.completes(past.begins(past.add("old")), 10.0)
    middle = past.wall_s + 1
    past.completes(past.begins(past.add("new")), 20.0)
    page = past.page(since=middle)
    assert [one["name"] for one in page["attempts"]] == ["new"]
    assert page["next"] is None


def test_who_knows_the_newest_is_told_what_came_after(past: Past) -> None:
    """Once each, whichever page it is on; and which attempt of which job it was."""
    first = past.completes(past.begins(past.add("first")), 10.0)
    page = past.page()
    assert [(one["job_id"], one["attempt"]) for one in page["attempts"]] == [(first.job_id, 1)]
    again = past.page(after=page["newest"])
    assert (again["attempts"], again["next"]) == ([], None)
    job = past.begins(past.then(past.begins(past.add("second")), Event.LOST, 20.0))
    past.completes(job, 30.0)
    newer = past.page(after=page["newest"], limit=1)
    rest = past.page(after=page["newest"], limit=1, before=newer["next"])
    told = [*newer["attempts"], *rest["attempts"]]
    assert [(one["attempt"], one["end"]) for one in told] == [(2, "completed"), (1, "lost")]
    assert rest["next"] is None


def test_an_attempt_tells_the_epochs_that_its_job_sets(past: Past) -> None:
    """None where it leaves that to its trainer."""
    for epochs in (None, 60):
        hyper = {} if epochs is None else {"epochs": epochs}
        job = past.book.add(replace(spec(f"job-{epochs}"), hyper=hyper), past.now, "operator")
        past.ledger.commit(past.book.take_changes())
        past.completes(past.begins(job), 9.0)
    told = past.page()["attempts"]
    assert [one["epochs"] for one in told] == [60, None]
