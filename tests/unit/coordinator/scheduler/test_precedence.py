"""What a job waits for of those before it, and the forecast of jobs that come after others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.protocol.reasons import reason
from coordinator.jobs.reasons import NATURES, Wait
from coordinator.scheduler.feasibility import Against, Waiting
from coordinator.scheduler.play import Held
from coordinator.scheduler.precedence import Before, unmet, waits_for
from coordinator.ui.outlook import end_of_plan
from tests.unit.coordinator.scheduler.test_forecast import named, past, play, waits, whole
from tests.unit.coordinator.scheduler.test_rules import host

FAILED = reason("waits-failed", job="first", job_id="x", state="failed")


def after(name: str, *names: str, created_at: str = "2", **needs: Any) -> Waiting:
    """A pending job that comes after others."""
    ids = tuple(named(one).job_id for one in names)
    return Waiting(replace(named(name, **needs), after=ids), created_at)


@pytest.mark.parametrize(
    ("before", "code", "state"),
    [
        (Before("first", "pending"), "waits", "pending"),
        (Before("first", "claimed"), "waits", "claimed"),
        (Before("first", "running", in_plan=False), "waits", "running"),
        (Before("first", "uploading"), "waits", "uploading"),
        (Before("first", "failed"), "waits-failed", "failed"),
        (Before("first", "cancelled"), "waits-failed", "cancelled"),
        (Before("first", "pending", in_plan=False), "waits-failed", "orphaned"),
        (Before("first", "completed", has_result=False), "waits-failed", "gone"),
        (None, "waits-failed", "unknown"),
    ],
)
def test_a_job_waits_for_its_input(before: Before | None, code: str, state: str) -> None:
    """`waits` passes by itself, and `waits-failed` does not."""
    spec = replace(named("second"), inputs={"weights": "f" * 64})
    (found,) = unmet(spec, lambda _: before)
    assert (found.code, found.figures["state"]) == (code, state)
    assert NATURES[code].wait.passes is (code == "waits")


def test_what_is_completed_is_waited_for_no_more() -> None:
    """Of a job whose artifact is no input it does not matter whether that is there still."""
    both = replace(named("both"), inputs={"weights": "a" * 64}, after=("b" * 64, "a" * 64))
    there = {
        "a" * 64: Before("a", "completed"),
        "b" * 64: Before("b", "completed", has_result=False),
    }
    assert not [*unmet(both, there.get)]


def test_what_does_not_pass_is_told_first() -> None:
    runs = reason("waits", job="other", job_id="y", state="running")
    mark = waits_for([runs, FAILED])
    assert mark is not None
    assert (mark.what, mark.job, mark.state, mark.more) == ("job", "first", "failed", True)
    assert waits_for([]) is None


def test_a_job_begins_when_the_last_of_those_before_it_has_ended() -> None:
    """Though there is room all the time, and though it would come first."""
    found = play(
        after("z", "a", "b", priority=9), waits("a"), after("b", "a"), views=[host("pi", slots=4)]
    )
    assert [found[name].start.median_s for name in "abz"] == [0.0, 100.0, 200.0]
    assert found["z"].after == named("b").job_id
    assert found["z"].ends_known


def test_a_job_that_could_begin_still_needs_a_slot() -> None:
    found = play(waits("a"), waits("c", "1"), after("b", "a", created_at="9"), views=[host("pi")])
    assert [found[name].start.median_s for name in "acb"] == [0.0, 100.0, 200.0]
    assert found["b"].after == named("c").job_id


def test_a_job_waits_for_one_that_runs_by_what_that_has_left() -> None:
    held = Held(named("now"), "pi", elapsed_s=30.0)
    found = play(after("next", "now"), views=[host("pi"), host("pc")], held=(held,))
    assert found["next"].start.median_s == 70.0
    sent = Held(named("now"), "pi", elapsed_s=30.0, uses_slot=False)
    assert (
        play(after("next", "now"), views=[host("pi")], held=(sent,))["next"].start.median_s == 0.0
    )


def test_nobody_knows_when_a_job_begins_after_one_whose_end_is_unknown() -> None:
    late = Held(named("late"), "pi", elapsed_s=110.0)
    found = play(after("next", "late", "a"), waits("a"), views=[host("pi", slots=3)], held=(late,))
    assert found["next"].vague
    assert not found["next"].ends_known
    assert found["a"].ends_known


def test_the_grace_for_cuda_begins_when_a_job_could() -> None:
    """100 s after the job before it: not while there was nothing to be given."""
    found = play(waits("a"), after("b", "a", prefer_cuda=True), views=[host("pi")])
    assert found["b"].start.median_s == 100.0 + 300.0


@pytest.mark.words
def test_behind_a_job_that_failed_no_job_has_an_end() -> None:
    """Nor after one that no host can run; the others are predicted as ever."""
    failed = replace(after("second", "first"), behind=(FAILED,))
    jobs = (
        after("fourth", "third", priority=1),
        failed, after("third", "second"), waits("huge", min_ram_gib=4096), after("big", "huge"),
        waits("free"),
    )  # fmt: skip
    found = whole(*jobs, views=[host("pi")])
    by_name = {one.spec.name: one for one in found.outlooks.values()}
    told = {name: (one.verdict, one.awaits) for name, one in by_name.items()}
    behind = ("absent", Wait.PREDECESSOR)
    assert told == {
        "fourth": behind,
        "second": behind, "third": behind, "big": behind, "huge": ("stuck", Wait.EVER),
        "free": ("starts", None),
    }  # fmt: skip
    assert by_name["second"].against == (Against((FAILED,)),)
    (third,) = by_name["third"].against[0].reasons
    assert (third.code, third.figures["job"]) == ("waits", "second")
    assert "4 jobs wait for earlier jobs that do not go on" in end_of_plan(found)


def test_a_long_chain_is_predicted() -> None:
    """No step of it is a call within another."""
    jobs = [waits("j0"), *(after(f"j{n}", f"j{n - 1}", created_at="1") for n in range(1, 1500))]
    found = play(*jobs, views=[host("pi")], known=past(100.0))
    assert found["j1499"].start.median_s == 149_900.0
