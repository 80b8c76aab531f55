"""From an assignment to the end of its trainer."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core import effects as fx
from agent.core.slots import AHEAD_S
from agent.core.state import LINGER_S
from broker.clock import Now
from broker.protocol import messages as m
from broker.protocol.link_events import Incoming, Outgoing
from tests.harness.agent import GIB, HEX, JOB, Agent, leased

NO_DATA = m.Objection(code="no-data")

DRAINED = m.Why(code="drained", by="operator:al")


@pytest.mark.parametrize(
    ("agent", "more", "expected"),
    [
        (Agent(data=None), {}, NO_DATA),
        (Agent(), {"model": "cnn"}, m.Objection(code="no-trainer", said="cnn")),
        (Agent(), {"version": "b"}, m.Objection(code="other-version", key="b", said="unknown")),
        (Agent(ram_gib=1.5), {"needs": m.Needs(min_ram_gib=4)},
         m.Objection(code="ram-now", needed=4, available=1.5, total=16)),
        (Agent(disk_gib=1.5), {"needs": m.Needs(min_disk_gib=2)},
         m.Objection(code="disk-now", needed=2, available=1.5)),
        (Agent(), {"needs": m.Needs(min_cores=9)},
         m.Objection(code="cores", needed=9, available=4)),
        (Agent(), {"needs": m.Needs(require_cuda=True), "use_cuda": True},
         m.Objection(code="no-cuda")),
        (Agent(gpus=(m.Gpu(index=0, vram_free_bytes=GIB),)),
         {"needs": m.Needs(require_cuda=True, min_vram_gib=4), "use_cuda": True},
         m.Objection(code="vram-now", needed=4, available=1)),
    ],
)  # fmt: skip
def test_a_refusal_has_the_figures(
    agent: Agent, more: dict[str, Any], expected: m.Objection
) -> None:
    agent.assigned(**more)
    assert agent.said(m.Refused)[0].reasons == (expected,)
    assert not agent.took(fx.StartTrainer)


def _full(jobs: int) -> Agent:
    """A host with two cards that was assigned jobs a, b, c and so on."""
    agent = Agent(gpus=(m.Gpu(index=0), m.Gpu(index=3)), slots=2)
    for job in "abcde"[:jobs]:
        agent.hears(m.Assign(
            id=f"q{job}", job_id=job * 64, attempt=1, instance="i1", name="n", model="gbt",
            mode="oracle", needs=m.Needs(require_cuda=True), use_cuda=True,
        ))  # fmt: skip
    return agent


def test_a_full_host_takes_as_many_ahead_as_it_has_slots() -> None:
    agent = _full(5)
    assert [start.gpu for start in agent.took(fx.StartTrainer)] == [0, 3]
    assert [one.request_id for one in agent.said(m.Accepted)] == ["qa", "qb", "qc", "qd"]
    assert agent.said(m.Refused)[0].reasons == (m.Objection(code="busy", available=2),)


def test_what_was_taken_ahead_starts_when_a_trainer_has_ended() -> None:
    agent = _full(4)
    agent.took(fx.StartTrainer)
    agent.handle(fx.TrainerExited("b" * 64, 1, 0))
    (start,) = agent.took(fx.StartTrainer)
    assert (start.assign.job_id[0], start.slot, start.gpu) == ("c", 1, 3)
    agent.handle(fx.TrainerExited("a" * 64, 1, 1))
    (start,) = agent.took(fx.StartTrainer)
    assert (start.assign.job_id[0], start.slot, start.gpu) == ("d", 0, 0)
    agent.passes(60)
    assert not agent.said(m.Released)


def test_what_was_taken_ahead_is_given_back_when_no_slot_comes_free() -> None:
    agent = _full(3)
    agent.took(fx.StartTrainer)
    agent.passes(AHEAD_S + 1)
    (released,) = agent.said(m.Released)
    assert (released.job_id[0], released.why.code) == ("c", "busy")
    agent.handle(fx.TrainerExited("a" * 64, 1, 0))
    assert not agent.took(fx.StartTrainer)


def test_what_was_taken_ahead_can_be_cancelled() -> None:
    agent = _full(3)
    agent.took(fx.StartTrainer)
    agent.hears(m.Cancel(id="q", job_id="c" * 64, attempt=1))
    assert [one.job_id[0] for one in agent.said(m.Stopped)] == ["c"]
    agent.handle(fx.TrainerExited("a" * 64, 1, 0))
    assert not agent.took(fx.StartTrainer)


def test_reports_that_nobody_waits_for_leave_with_the_next_or_soon() -> None:
    agent = Agent(slots=2)
    agent.assigned()
    core = agent.core

    def handle(event: Any, later_s: float = 0.0) -> list[str]:
        core.handle(event, Now(agent.mono_s + later_s, agent.mono_s))
        said = (one for one in core.take() if isinstance(one, Outgoing))
        reports = (m.decode_reports(one.payload) for one in said if "job/response" in one.topic)
        return [" ".join(report.type for report in some) for some in reports]

    assert handle(fx.TrainerStarted(JOB, 1, 7)) == []
    due_s = core.next_deadline()
    assert due_s is not None
    assert due_s <= agent.mono_s + LINGER_S
    assert handle(fx.Tick(), LINGER_S) == ["started"]

    other = {"name": "b", "model": "gbt", "mode": "oracle", "id": "b", "instance": "i1"}
    second = m.Assign(job_id=HEX, attempt=1, **other)
    assert handle(Incoming(agent.topics.request("pi"), m.encode(second))) == ["accepted"]
    assert handle(leased(core)) == []
    assert handle(fx.TrainerStarted(HEX, 1, 8)) == []
    assert handle(fx.TrainerExited(HEX, 1, 2)) == ["started failed"]


def test_an_assignment_is_carried_out_once() -> None:
    """J2: repeated while it runs it is accepted again; when it is over it is refused."""
    agent = Agent()
    agent.runs()
    agent.said(m.Accepted)
    agent.assigned(1)
    assert agent.said(m.Accepted)
    assert agent.said(m.Started)
    finished = agent.finishes()
    agent.assigned(1)
    assert agent.said(m.Finished)[0].id == finished.id
    agent.noted(finished, "stored")
    agent.assigned(1)
    assert agent.said(m.Refused)[0].reasons[0].code == "over"
    assert not agent.took(fx.StartTrainer)
    agent.assigned(2)
    assert agent.took(fx.StartTrainer)


def test_a_retained_or_foreign_command_is_none() -> None:
    """T2: a replay; what is meant for another host, or for another process of this agent."""
    agent = Agent()
    assign = m.Assign(
        id="a", job_id=JOB, attempt=1, instance="i1", name="n", model="gbt", mode="oracle",
    )  # fmt: skip
    agent.handle(Incoming(agent.topics.request("pi"), m.encode(assign), retained=True))
    agent.handle(Incoming(agent.topics.request("other"), m.encode(assign)))
    agent.hears(assign.model_copy(update={"instance": "i0"}))
    assert not agent.took(fx.StartTrainer)
    assert not agent.said(m.Refused)


def test_cancel_means_term_then_kill_then_stopped() -> None:
    """J7: the answer comes when nothing runs any more."""
    agent = Agent()
    agent.runs()
    agent.hears(m.Cancel(id="c1", job_id=JOB, attempt=1))
    assert [one.kill for one in agent.took(fx.SignalTrainer)] == [False]
    assert not agent.said(m.Stopped)
    agent.passes(11)
    assert [one.kill for one in agent.took(fx.SignalTrainer)] == [True]
    agent.ends(-9)
    assert agent.said(m.Stopped)[0].request_id == "c1"
    assert agent.took(fx.ClearJob)
    assert not agent.said(m.Failed)


@pytest.mark.parametrize(("ask", "answer"), [(m.Cancel, m.Stopped), (m.Release, m.Released)])
def test_what_is_not_here_is_answered_at_once(ask: Any, answer: Any) -> None:
    agent = Agent()
    agent.hears(ask(id="c1", job_id=JOB, attempt=3))
    assert agent.said(answer)[0].attempt == 3
    agent.assigned(3)
    assert agent.said(m.Refused)
    agent.assigned(4)
    assert agent.took(fx.StartTrainer)


@pytest.mark.parametrize("when", ["starting", "bundling", "owed"])
def test_cancel_at_any_moment_leaves_nothing(when: str) -> None:
    agent = Agent()
    agent.assigned()
    cancel = m.Cancel(id="c1", job_id=JOB, attempt=1)
    if when == "starting":
        agent.hears(cancel)
        agent.handle(fx.TrainerStarted(JOB, 1, 77))
        assert agent.took(fx.SignalTrainer)
        agent.ends(-15)
    else:
        agent.handle(fx.TrainerStarted(JOB, 1, 77))
        agent.ends(0)
        if when == "bundling":
            agent.hears(cancel)
            agent.handle(fx.BundleMade(JOB, 1, HEX, 2000))
        else:
            agent.handle(fx.BundleMade(JOB, 1, HEX, 2000))
            agent.hears(cancel)
    assert agent.said(m.Stopped)
    assert agent.took(fx.ClearJob)
    assert agent.phase() is None


def test_a_trainer_that_takes_too_long_is_ended() -> None:
    agent = Agent()
    agent.runs(timeout_s=100.0)
    for _ in range(9):
        agent.passes(10)
        agent.handle(fx.TrainerLine(JOB, 1, "epoch"))
    assert not agent.took(fx.SignalTrainer)
    agent.passes(11)
    assert agent.took(fx.SignalTrainer) == [fx.SignalTrainer(JOB, 1, kill=False)]
    agent.ends(-15)
    (failed,) = agent.said(m.Failed)
    assert "timeout: it ran for longer than 100 s" in failed.error
    assert failed.transient


def test_a_trainer_that_says_nothing_is_ended() -> None:
    agent = Agent()
    agent.runs(stall_timeout_s=60.0)
    for _ in range(4):
        agent.passes(50)
        agent.handle(fx.TrainerLine(JOB, 1, "still here"))
    assert not agent.took(fx.SignalTrainer)
    agent.passes(61)
    assert agent.took(fx.SignalTrainer)[0].kill is False
    agent.passes(11)
    assert agent.took(fx.SignalTrainer)[0].kill is True
    agent.ends(-9)
    (failed,) = agent.said(m.Failed)
    assert "stalled: no output and no progress for 60 s" in failed.error


def test_a_limit_does_not_outlive_its_run() -> None:
    agent = Agent()
    agent.runs(timeout_s=100.0)
    agent.hears(m.Cancel(id="c", job_id=JOB, attempt=1))
    agent.took(fx.SignalTrainer)
    agent.ends(-15)
    agent.runs(2, timeout_s=100.0)
    agent.passes(99)
    assert not agent.took(fx.SignalTrainer)


def test_work_that_ends_well_in_the_last_moment_counts() -> None:
    agent = Agent()
    agent.runs(timeout_s=100.0)
    agent.passes(101)
    assert agent.finishes().artifact_id == HEX


def test_a_cancel_may_leave_what_is_finished() -> None:
    for finished in (False, True):
        agent = Agent()
        agent.runs()
        agent.ends(0)
        if finished:
            agent.handle(fx.BundleMade(JOB, 1, HEX, 2000))
        agent.hears(m.Cancel(id="c", job_id=JOB, attempt=1, keep_finished=True))
        assert agent.said(m.Stopped)
        if not finished:
            agent.handle(fx.BundleMade(JOB, 1, HEX, 2000))
        assert agent.said(m.Finished)
        assert not agent.took(fx.ClearJob)


def test_what_was_refused_stays_refused() -> None:
    """A second copy of the assignment finds the slot free; the attempt was refused all the same."""
    agent = Agent(ram_gib=1)
    first = agent.assigned(needs=m.Needs(min_ram_gib=4))
    (refused,) = agent.said(m.Refused)
    agent.ram_gib = 8
    agent.hears(first)
    assert agent.said(m.Refused)[0].reasons == refused.reasons
    assert not agent.took(fx.StartTrainer)
    agent.assigned(2, needs=m.Needs(min_ram_gib=4))
    assert agent.took(fx.StartTrainer)


def _release(agent: Agent, attempt: int = 1) -> None:
    agent.hears(m.Release(id=agent.new_id(), job_id=JOB, attempt=attempt, why=DRAINED))


def test_a_release_ends_the_trainer_and_gives_its_checkpoint_back() -> None:
    agent = Agent()
    agent.runs()
    _release(agent)
    _release(agent)
    assert [one.kill for one in agent.took(fx.SignalTrainer)] == [False]
    released = agent.leaves_off(artifact_id=HEX)
    assert (released.why, released.artifact_id) == (DRAINED, HEX)
    agent.assigned(2)
    assert agent.took(fx.StartTrainer), "a drain is the coordinator's business"


def test_a_heartbeat_does_not_overtake_what_it_shows() -> None:
    """By a heartbeat alone the coordinator would not know that a trainer resumes."""
    agent = Agent()
    agent.assigned()
    later = Now(agent.mono_s + 31.0, agent.mono_s + 31.0)
    for event in (fx.Tick(), fx.TrainerStarted(JOB, 1, 7)):
        agent.core.handle(event, later)
    agent.core.take()
    agent.core.handle(fx.Vitals(GIB, "d"), later)
    sent = [one.topic for one in agent.core.take() if isinstance(one, Outgoing)]
    kinds = [topic.rpartition("/")[2] for topic in sent]
    assert kinds.index("response") < kinds.index("heartbeat")
