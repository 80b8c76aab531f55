"""Jobs that come after others: when they start, what they are given, and what holds them up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.protocol import messages as m
from coordinator.cli.plan import _after, after_reload
from coordinator.client.predictions import look
from coordinator.core.effects import ArtifactLost, Collect, PartStored, SendChunk
from coordinator.jobs.causes import in_words
from coordinator.jobs.jobs import Job
from coordinator.jobs.plan_entries import JobSpec, Plan
from coordinator.jobs.reason_words import summary
from coordinator.jobs.reasons import Wait
from coordinator.ui.up_live import in_words as left_in_words
from coordinator.ui.up_live import left_over
from tests.harness.coordinator import HEX, Fleet, Host, joined, spec
from tests.harness.inclient import client_of

TRAINERS = {"gbt": m.TrainerInfo(hyper_schema={})}
GRANT = m.Grant(missing=((0, 1),), horizon=1, window_chunks=16)


def second(name: str = "second", first: str = "first", **needs: Any) -> JobSpec:
    """A job that reads what another has made."""
    return replace(spec(name, **needs), inputs={"weights": spec(first).job_id})


def after(name: str, *names: str, **needs: Any) -> JobSpec:
    return replace(spec(name, **needs), after=tuple(spec(one).job_id for one in names))


def states(fleet: Fleet) -> dict[str, str]:
    return {job.spec.name: job.state.value for job in fleet.ledger.values()}


def starts(pi: Host, name: str) -> Job:
    """The host starts what it was given."""
    job = pi.fleet.job(name)
    pi.reports(m.Accepted, job, request_id="-")
    pi.reports(m.Started, job, slot=0, pid=1)
    return pi.fleet.job(name)


def fails(pi: Host, name: str = "first") -> None:
    pi.reports(m.Failed, starts(pi, name), error="no", transient=False)


def behind(fleet: Fleet, name: str = "second") -> list[tuple[str, str, str]]:
    """What `fleet why` tells of the jobs before a job; list, status and plan agree with it."""
    why = fleet.why(name)
    found = [(one["code"], one["job"], one["state"]) for one in why["predecessors"]]
    row = next(one for one in fleet.listed() if one["name"] == name)
    told = {one["name"]: one["waits_for"] for one in fleet.status()["waiting"]["jobs"]}
    assert told.get(name) == row.get("waits_for")
    if found:
        first = min(found, key=lambda one: one[0] != "waits-failed")
        mark = row["waits_for"]
        assert (mark["what"], mark["job"], mark["state"]) == ("job", *first[1:])
        assert not row["unplaceable"]
        assert why["in_time"] is (first[0] == "waits")
        assert bool(why["hosts"] or why["suitable"]) is why["in_time"], "it names that job alone"
        one = look(client_of(fleet)).forecast().outlooks[row["job_id"]]
        assert (one.awaits is Wait.PREDECESSOR) is (first[0] == "waits-failed")
    return found


def test_a_job_starts_when_the_artifact_of_the_one_before_it_is_stored() -> None:
    """Neither when that runs nor when it is finished; then at once, with the artifact's id."""
    fleet, pi = joined(second(priority=9), spec("first"))
    assert behind(fleet) == [("waits", "first", "claimed")]
    assert pi.finishes(starts(pi, "first")) == "wanted"
    assert behind(fleet) == [("waits", "first", "uploading")]
    assert states(fleet)["second"] == "pending"
    pi.uploads()
    fleet.handle(PartStored(HEX, 2000))
    (assign,) = pi.heard(m.Assign)
    assert assign.name == "second"
    assert assign.inputs == (m.Input(name="weights", artifact_id=HEX, size_bytes=2000),)
    assert behind(fleet) == []


def test_a_job_waits_for_all_that_come_before_it() -> None:
    """What is no input is not given to it."""
    fleet, pi = joined(
        spec("first", priority=2), spec("other", priority=1), after("third", "first", "other")
    )
    pi.brings_home(starts(pi, "first"))
    assert behind(fleet, "third") == [("waits", "other", "claimed")]
    pi.finishes(starts(pi, "other"))
    (assign,) = pi.heard(m.Assign)
    assert (assign.name, assign.inputs) == ("third", ())


def test_a_job_that_is_added_later_starts_at_once() -> None:
    """One whose job before it is completed long since, and one behind one that comes with it."""
    fleet, pi = joined(spec("first"))
    pi.brings_home(starts(pi, "first"))
    pi.heard(m.Assign)
    fleet.plan(spec("first"), second(), after("third", "second"))
    assert [one.name for one in pi.heard(m.Assign)] == ["second"]
    assert behind(fleet, "third") == [("waits", "second", "claimed")]


def test_a_restart_forgets_nothing() -> None:
    """Jobs that wait go on waiting, and those whose time has come are given out."""
    fleet, pi = joined(spec("first"), second(), after("third", "second"))
    pi.brings_home(starts(pi, "first"))
    fleet.stored = {HEX: 2000}
    fleet.start()
    pi.returns((fleet.job("second").job_id, 1, "starting"))
    assert behind(fleet, "third")[0][1:] == ("second", states(fleet)["second"])
    pi.finishes(fleet.job("second"))
    assert [one.name for one in pi.heard(m.Assign)][-1:] == ["third"]


def test_what_was_given_out_before_a_restart_is_given_out_with_its_input_again() -> None:
    fleet, pi = joined(spec("first"), second())
    pi.brings_home(starts(pi, "first"))
    pi.heard(m.Assign)
    fleet.stored = {HEX: 2000}
    fleet.start()
    (again,) = pi.heard(m.Assign)
    assert [one.artifact_id for one in again.inputs] == [HEX]
    fleet.start()
    fleet.ask(m.AskRequeue, job="first")
    fleet.sent.clear()
    fleet.start()
    fleet.passes(3.0)
    assert not [one for one in pi.heard(m.Assign) if one.name == "second"], "never without it"


@pytest.mark.words
def test_behind_a_job_that_failed_a_job_waits_until_that_is_requeued() -> None:
    """It stays pending; nothing is left that could run, which ends `fleet up --until-idle`."""
    fleet, pi = joined(spec("first"), second())
    fails(pi)
    assert behind(fleet) == [("waits-failed", "first", "failed")]
    assert states(fleet) == {"first": "failed", "second": "pending"}
    status = fleet.status()
    assert (status["active"], status["runnable"]) == (0, 0)
    assert "waits for first, which failed; `fleet requeue first`" in summary(fleet.why("second"))
    client = client_of(fleet)
    left = left_over(client, fleet.listed())
    said = " ".join(left_in_words(client, left, len(left)))
    assert "the jobs before them were not completed" in said
    assert "after `fleet requeue first`" in said
    assert "elsewhere" not in said
    assert fleet.ask(m.AskRequeue, job="first").ok
    assert behind(fleet) == [("waits", "first", "claimed")]
    pi.brings_home(starts(pi, "first"))
    assert [one.name for one in pi.heard(m.Assign)] == ["second"]


def test_a_cancelled_job_and_one_that_left_the_plan_hold_up_what_comes_after() -> None:
    fleet, _ = joined(spec("busy", priority=9), spec("first"), second())
    fleet.ask(m.AskCancel, job="first")
    assert behind(fleet) == [("waits-failed", "first", "cancelled")]
    fleet.ask(m.AskRequeue, job="first")
    assert behind(fleet) == [("waits", "first", "pending")]
    fleet.plan(spec("busy", priority=9), second())
    assert behind(fleet) == [("waits-failed", "first", "orphaned")]
    fleet.plan(spec("busy", priority=9), spec("first"), second())
    assert behind(fleet) == [("waits", "first", "pending")]


def test_cancel_and_requeue_of_a_job_that_waits_are_those_of_any_other() -> None:
    fleet, pi = joined(spec("first"), second())
    fleet.ask(m.AskCancel, job="second")
    pi.brings_home(starts(pi, "first"))
    assert states(fleet) == {"first": "completed", "second": "cancelled"}
    fleet.ask(m.AskRequeue, job="second")
    assert states(fleet)["second"] == "claimed"


def test_an_input_that_is_gone_from_the_store_is_waited_for() -> None:
    """Of a job that is only to come before, it does not matter."""
    fleet, pi = joined(
        spec("first", priority=2), spec("busy", priority=1), second(), after("third", "first")
    )
    pi.brings_home(starts(pi, "first"))
    fleet.handle(ArtifactLost(HEX))
    assert behind(fleet) == [("waits-failed", "first", "gone")]
    assert behind(fleet, "third") == []
    fleet.ask(m.AskRequeue, job="first")
    assert behind(fleet) == [("waits", "first", "pending")]


def test_a_host_may_fetch_the_inputs_of_the_jobs_that_it_has() -> None:
    fleet, pi = joined(spec("first"), second())
    topic = fleet.topics.checkpoint_grant
    pi.brings_home(starts(pi, "first"))
    fleet.host("other").says(topic("other", HEX), GRANT)
    assert not fleet.took(SendChunk)
    pi.says(topic("pi", HEX), GRANT)
    (sent,) = fleet.took(SendChunk)
    assert (sent.artifact_id, sent.topic) == (HEX, fleet.topics.checkpoint_chunk("pi", HEX, 0))
    job = starts(pi, "second")
    fleet.stored = {HEX: 2000}
    fleet.start()
    pi.returns((job.job_id, 1, "running"))
    pi.says(topic("pi", HEX), GRANT)
    assert fleet.took(SendChunk), "after a restart as well"


def test_what_a_running_job_was_given_stays_when_the_one_before_it_begins_anew() -> None:
    """The host may be at fetching it; when the job is over, nobody needs it."""
    fleet, pi = joined(spec("first"), second())
    pi.brings_home(starts(pi, "first"))
    job = starts(pi, "second")
    fleet.ask(m.AskRequeue, job="first")
    pi.says(fleet.topics.checkpoint_grant("pi", HEX), GRANT)
    assert fleet.took(SendChunk)
    pi.says(fleet.topics.checkpoint_grant("pi", HEX), m.Stored())
    for _ in range(20):
        fleet.passes(20.0)
        pi.beats((job.job_id, 1, "running"))
    assert [one.unreferenced for one in fleet.took(Collect)] == [()]
    pi.reports(m.Failed, job, error="no", transient=False)
    fleet.passes(7 * 3600.0)
    assert fleet.took(Collect)[0].unreferenced == (HEX,)


def test_a_waiting_job_does_not_lose_the_job_before_it_again_when_that_begins_anew() -> None:
    """It has not started: it waits for the new result."""
    fleet, pi = joined(spec("first", priority=2), spec("busy", priority=1), second())
    pi.brings_home(starts(pi, "first"))
    assert behind(fleet) == []
    fleet.ask(m.AskRequeue, job="first")
    assert behind(fleet) == [("waits", "first", "pending")]
    pi.finishes(starts(pi, "busy"))
    assert [one.name for one in pi.heard(m.Assign)] == ["first"]


def test_the_grace_for_cuda_begins_when_nothing_else_is_waited_for() -> None:
    """Else it would be over before there was a choice."""
    fleet, pi = joined(spec("first"), second(prefer_cuda=True))
    job = starts(pi, "first")
    for _ in range(40):
        fleet.passes(20.0)
        pi.beats((job.job_id, 1, "running"))
    waiting = (one for one in look(client_of(fleet)).jobs if one.spec.name == "second")
    assert next(waiting).waiting().waited_s == 0.0
    pi.brings_home(job)
    assert fleet.reasons("second") == ["grace"]
    for _ in range(14):
        fleet.passes(20.0)
        pi.beats()
    assert fleet.reasons("second") == ["grace"]
    fleet.passes(20.0)
    assert states(fleet)["second"] == "claimed"


def test_show_names_the_jobs_before_one() -> None:
    from coordinator.core.effects import LookUp

    fleet, _ = joined(
        spec("first"), replace(second(), after=(spec("other").job_id,)), spec("other")
    )
    fleet.ask(m.AskShow, job="second")
    (answer,) = fleet.took(LookUp)
    assert answer.data["predecessors"] == [
        {"input": "weights", "job_id": spec("first").job_id, "name": "first", "state": "claimed"},
        {"input": None, "job_id": spec("other").job_id, "name": "other", "state": "pending"},
    ]


def test_a_job_beside_the_manifest_names_jobs_of_the_fleet() -> None:
    """By name, id, or the start of either."""
    fleet, pi = joined(spec("first"), trainers=TRAINERS)
    first = fleet.job("first")
    for number, text in enumerate(("first", "fir", first.job_id, first.job_id[:9])):
        job = {"model": "gbt", "mode": "oracle", "seed": number, "after": [text]}
        assert fleet.ask(m.AskRun, job=job).data["added"]
        added = next(
            one for one in fleet.ledger.values() if one.spec.seed == number and one != first
        )
        assert added.spec.after == (first.job_id,)
    assert fleet.status()["waiting"]["count"] == 4
    pi.brings_home(starts(pi, "first"))
    assert fleet.status()["waiting"]["count"] == 0


def test_all_that_is_wrong_with_such_a_job_is_told_at_once() -> None:
    fleet, _ = joined(spec("first"), spec("fir"), trainers=TRAINERS)
    job = {
        "model": "gbt", "mode": "oracle", "priority": "high", "after": ["nobody", "f"],
        "inputs": {"w": "none"},
    }  # fmt: skip
    answer = fleet.ask(m.AskRun, job=job)
    told = [(one["key"], one["why"]["code"]) for one in answer.data["errors"]]
    assert told == [
        ("after", "no_job"), ("after", "ambiguous"), ("inputs.w", "no_job"), ("priority", "text"),
        ("inputs.w", "text"),
    ]  # fmt: skip
    recorded = fleet.actions[-1].what
    assert recorded == {"code": "first_of", "more": 4, **answer.data["errors"][0]}


@pytest.mark.words
def test_a_job_cannot_be_asked_for_after_itself() -> None:
    """As one that is there already, before another."""
    fleet, _ = joined(trainers=TRAINERS)
    own = {"model": "gbt", "mode": "oracle", "seed": 5, "name": "own"}
    fleet.ask(m.AskRun, job=own)
    fleet.ask(m.AskRun, job={"model": "gbt", "mode": "oracle", "name": "next", "after": ["own"]})
    answer = fleet.ask(m.AskRun, job=own | {"after": ["next"]})
    (error,) = answer.data["errors"]
    assert error["key"] == "after"
    assert in_words(error["why"]).startswith("own would come after itself")
    assert not fleet.ask(m.AskRun, job=own | {"after": ["own"]}).ok


def test_a_plan_that_is_not_read_yet_is_predicted_with_its_order() -> None:
    """Behind what has failed there is no start; behind what is to come, or done, there is one."""
    fleet, pi = joined(spec("first"), spec("done"))
    pi.brings_home(starts(pi, "done"))
    fails(pi)
    picture = look(client_of(fleet), ())
    linked = (after("a", "first"), after("b", "done"), after("c", "new"), after("d", "a"))
    plan = Plan((spec("first"), spec("done"), spec("new"), *linked))
    found = _after(picture, after_reload(picture, plan), plan).outlooks.values()
    told = {one.spec.name: one.verdict for one in found}
    assert told == {"new": "starts", "a": "absent", "b": "starts", "c": "starts", "d": "absent"}
