"""The coordinator's core, driven without any IO: every message it sees or sends is encoded."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from broker.protocol.topic_table import Kind
from coordinator.core.effects import ManifestRefused
from coordinator.jobs.jobs import Change
from coordinator.jobs.states import Event
from coordinator.manifest.problems import Problem
from tests.harness.coordinator import HEX, OPERATOR, Fleet, joined, running, spec


def test_an_assignment_is_repeated_until_it_is_answered() -> None:
    """With the same id and attempt; after the time is over the job is pending again.

    A host that starts it even so goes on with it: nobody else has it.
    """
    fleet, pi = joined(spec(), claim_timeout_s=30.0)
    fleet.passes(20)
    assigned = pi.heard(m.Assign)
    assert len(assigned) > 2
    assert len({(one.id, one.attempt) for one in assigned}) == 1
    fleet.passes(15)
    assert (fleet.job().state, fleet.job().losses) == ("pending", 0)
    assert fleet.history[-1] == ("job", "unanswered")
    pi.reports(m.Started, fleet.job(), assigned[0].attempt, slot=0, pid=1)
    assert (fleet.job().state, fleet.job().attempt, fleet.job().host) == ("running", 1, "pi")


def test_a_refusal_is_explained_and_not_asked_again_at_once() -> None:
    """The host's own words are what `why` shows."""
    fleet, pi = joined(spec())
    pi.refuses(why=m.Objection(code="ram-now", needed=9, available=1))
    assert fleet.job().state == "pending"
    assert not pi.heard(m.Assign)
    assert fleet.why()["hosts"][0]["reasons"] == [
        {"code": "refused", "reasons": [{"code": "ram-now", "needed": 9.0, "available": 1.0}]}
    ]
    fleet.passes(31)
    assert {assign.attempt for assign in pi.heard(m.Assign)} == {2}


@pytest.mark.parametrize("state", ["pending", "claimed", "running", "completed", "cancelled"])
def test_cancel_and_requeue_in_every_state(state: str) -> None:
    """Cancel in all but the final ones, requeue in all but pending; a holder is told to stop."""
    fleet = Fleet(spec())
    pi = fleet.host()
    if state != "pending":
        pi.joins()
    if state in {"running", "completed"}:
        job = pi.runs()
    if state == "completed":
        fleet.core.world.stored[HEX] = 2000
        pi.finishes(job)
    if state == "cancelled":
        fleet.asks(m.AskCancel(id="c0", job="job"))
    assert fleet.job().state == state
    pi.heard(m.Cancel)
    requeue = fleet.asks(m.AskRequeue(id="r", job="job"))
    assert requeue.ok == (state != "pending")
    assert len(pi.heard(m.Cancel)) == (state in {"claimed", "running"})
    if state not in {"completed", "cancelled"}:
        assert fleet.asks(m.AskCancel(id="c", job="job")).ok
        assert fleet.job().state == "cancelled"


def test_cancel_is_repeated_until_the_agent_answers() -> None:
    fleet, pi, job = running()
    fleet.asks(m.AskCancel(id="c", job="job"))
    fleet.passes(10)
    cancels = pi.heard(m.Cancel)
    assert len(cancels) >= 2
    pi.reports(m.Stopped, job, request_id=cancels[-1].id)
    fleet.passes(60)
    assert not pi.heard(m.Cancel)


def test_a_command_is_answered_whatever_it_names() -> None:
    """The answer says that again, as far as it bears it."""
    fleet = Fleet(spec())
    name = "\U000e0001" * 2000
    answer = fleet.asks(m.AskCancel(id="c", job=name))
    assert answer.code == "not_found"
    assert fleet.asks(m.AskShow(id="s", job=name)).code == "not_found"
    assert not fleet.core.world.dropped


def test_a_command_that_is_too_old_is_not_carried_out() -> None:
    """O2: it lay somewhere for too long; T2: what is retained is a replay."""
    fleet = Fleet(spec())
    old = fleet.now.wall_s - 3600
    answer = fleet.asks(m.AskCancel(id="x", job="job", expires_at=old))
    assert answer.code == "expired"
    ask, topic = m.AskCancel(id="y", job="job"), fleet.topics.operator_request(OPERATOR)
    fleet.handle(Incoming(topic, m.encode(ask), retained=True))
    assert fleet.job().state == "pending"


def test_a_reload_changes_in_place_and_orphans_are_not_assigned() -> None:
    """The state stays; what was taken out waits for `cancel`, or to be put back."""
    fleet = Fleet(spec("a"), spec("b"))
    fleet.plan(spec("a", priority=5))
    assert fleet.job("a").spec.priority == 5
    assert not fleet.job("b").in_plan
    pi = fleet.host().joins(slots=2)
    assert [one.name for one in pi.heard(m.Assign)] == ["a"]
    fleet.plan(spec("a", priority=5), spec("b"))
    assert [one.name for one in pi.heard(m.Assign)] == ["b"]
    assert [event for name, event in fleet.history if name == "b"] == [
        "added", "orphaned", "adopted", "assigned"
    ]  # fmt: skip


def test_of_two_jobs_with_one_name_every_answer_tells_the_other() -> None:
    """The name means that of the manifest; where it means neither, both ids are told."""
    fleet = Fleet(spec("a"))
    old = fleet.job("a").job_id
    fleet.plan(spec("a", seed=1))
    new = spec("a", seed=1).job_id
    other = {"job_id": old, "state": "pending", "host": None, "in_plan": False}
    for ask in (m.AskWhy, m.AskCancel, m.AskRequeue):
        said = fleet.asks(ask(id=fleet.new_id(), job="a"))
        assert (said.data["job_id"], said.data["others"]) == (new, [other]), ask
    fleet.plan(spec("b"))
    refused = fleet.asks(m.AskCancel(id=fleet.new_id(), job="a"))
    assert not refused.ok
    assert {one["job_id"] for one in refused.why["jobs"]} == {old, new}
    assert refused.why["alike"]


def test_a_manifest_with_errors_is_marked_until_it_is_mended() -> None:
    """Whoever looks at the fleet sees that the plan is older than the file."""
    fleet = Fleet(spec("a"))

    def fault() -> Any:
        return fleet.status()["coordinator"]["manifest_fault"]

    assert fault() is None
    fleet.handle(ManifestRefused((Problem("plan.toml", "", "", "it is empty"),)))
    assert fault() == {"code": "faults", "text": "plan.toml: it is empty", "more": 0}
    faults = (Problem("plan.toml", "jobs[0]", "model", "unknown", 12),) * 2
    fleet.handle(ManifestRefused(faults))
    where = "plan.toml:12: jobs[0]: model: unknown"
    assert fault() == {"code": "faults", "text": where, "more": 1}
    assert fleet.job("a").state == "pending"
    fleet.plan(spec("a"))
    assert fault() is None


def test_a_job_is_told_in_a_line_whatever_a_host_says_of_it() -> None:
    fleet = Fleet(spec("a"))
    after = replace(fleet.job("a"), host="pi", attempt=2, error="out of\x1b[2J memory\nmore")
    change = Change(Event.FAILED, fleet.job("a"), after, "now", "host:pi", "")
    assert str(change) == f"job a ({after.job_id[:12]}), attempt 2: failed on pi: out of [2J memory"


def test_a_stale_offline_of_our_own_is_overruled() -> None:
    """P6: a late will of an earlier coordinator must not be the last word."""
    fleet = Fleet()
    fleet.sent.clear()
    fleet.hears_coordinator("c0", "offline", "old")
    births = [said for where, said in fleet.sent if where.kind is Kind.COORDINATOR_STATUS]
    assert births[0].state == "online"


def test_what_an_operator_reads() -> None:
    fleet, _ = joined(*(spec(f"job-{number:03}", seed=number) for number in range(250)))
    status = fleet.status()
    assert status["jobs"]["pending"] == 249
    assert status["active"] == 1
    assert status["runnable"] == 249
    first = fleet.asks(m.AskList(id="l")).data
    second = fleet.asks(m.AskList(id="l", offset=first["next"])).data
    assert len(first["jobs"]) + len(second["jobs"]) == 250
    assert second["next"] is None
    worker = fleet.asks(m.AskWorkers(id="w")).data["workers"][0]
    assert (worker["host"], worker["status"]) == ("pi", "online")
    assert list(fleet.asks(m.AskTrainers(id="t")).data["trainers"]) == ["gbt"]
    assert json.dumps(status)


def test_what_a_host_waits_for_is_said_before_the_rows() -> None:
    """Of a job that moves twice in a turn there is one row, as it then is, after all else."""
    fleet, pi = joined()
    fleet.sent.clear()
    ask = m.AskRun(id="r", job={"name": "asked", "model": "gbt", "mode": "oracle"})
    fleet.handle(Incoming(fleet.topics.operator_request(OPERATOR), m.encode(ask)))
    assert Kind.JOB not in {topic.kind for topic, _ in fleet.sent}
    fleet.passes(1)
    kinds = [topic.kind for topic, _ in fleet.sent]
    assert kinds[-1] is Kind.JOB
    assert kinds.count(Kind.JOB) == 1
    assert fleet.sent[-1][1].state == "claimed"
    assert pi.heard(m.Assign)
