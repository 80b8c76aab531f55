"""From an assignment to the end of its trainer."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core import effects as fx
from broker.protocol import messages as m
from broker.protocol.events import Incoming
from tests.harness.agent import GIB, HEX, JOB, Agent


@pytest.mark.parametrize(
    ("agent", "more", "words"),
    [
        (Agent(data=None), {}, "has no prepared data"),
        (Agent(), {"model": "cnn"}, "has no trainer for 'cnn'"),
        (Agent(ram_gib=1.5), {"needs": m.Needs(min_ram_gib=4)},
         "needs 4 GiB of RAM; 1.5 GiB is available"),
        (Agent(), {"needs": m.Needs(min_cores=9)}, "needs 9 cores; this host has 4"),
        (Agent(), {"needs": m.Needs(require_cuda=True), "use_cuda": True},
         "needs CUDA; this host has none"),
        (Agent(gpus=(m.Gpu(index=0, vram_free_bytes=GIB),)),
         {"needs": m.Needs(require_cuda=True, min_vram_gib=4), "use_cuda": True},
         "needs 4 GiB of VRAM; 1.0 GiB is free on GPU 0"),
    ],
)  # fmt: skip
def test_a_refusal_has_the_figures(agent: Agent, more: dict[str, Any], words: str) -> None:
    """Judged by what is free at this moment."""
    agent.assigned(**more)
    assert agent.said(m.Refused)[0].reasons == (words,)
    assert not agent.took(fx.StartTrainer)


def test_a_full_host_refuses_and_each_gpu_is_a_slot() -> None:
    """Two cards, two jobs, each with its own; a third is one too many."""
    gpus = (m.Gpu(index=0), m.Gpu(index=3))
    agent = Agent(gpus=gpus, slots=2)
    for number, job_id in enumerate(("aa" * 32, "bb" * 32, "cc" * 32)):
        agent.hears(m.Assign(
            id=f"q{number}", job_id=job_id, attempt=1, instance="i1", name="n", model="gbt",
            mode="oracle", needs=m.Needs(require_cuda=True), use_cuda=True,
        ))  # fmt: skip
    assert [start.gpu for start in agent.took(fx.StartTrainer)] == [0, 3]
    assert agent.said(m.Refused)[0].reasons == ("all 2 slots are busy",)


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
    assert "attempt 1 is over" in agent.said(m.Refused)[0].reasons[0]
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


@pytest.mark.parametrize(
    ("why", "said"),
    [("", "cancelled"), ("cancelled", "cancelled"), ("drained", "cancelled: drained")],
)
def test_why_an_attempt_ends_is_told(why: str, said: str) -> None:
    """For the log, without saying a word twice."""
    agent = Agent()
    agent.runs()
    agent.hears(m.Cancel(id="c1", job_id=JOB, attempt=1, why=why))
    assert agent.core.why_ending(JOB, 1) == said


@pytest.mark.parametrize(("ask", "answer"), [(m.Cancel, m.Stopped), (m.Release, m.Released)])
def test_what_is_not_here_is_answered_at_once(ask: Any, answer: Any) -> None:
    """And a late assignment of that attempt does not start; the next one does."""
    agent = Agent()
    agent.hears(ask(id="c1", job_id=JOB, attempt=3))
    assert agent.said(answer)[0].attempt == 3
    agent.assigned(3)
    assert agent.said(m.Refused)
    agent.assigned(4)
    assert agent.took(fx.StartTrainer)


@pytest.mark.parametrize("when", ["starting", "bundling", "owed"])
def test_cancel_at_any_moment_leaves_nothing(when: str) -> None:
    """Before the process runs, while its bundle is made, while it waits in the spool."""
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
    """However busy it is; another attempt may go well."""
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
    """Every line it puts out counts as a sign of life."""
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
    """Neither a cancelled run nor the next attempt is touched by the last one's limit."""
    agent = Agent()
    agent.runs(timeout_s=100.0)
    agent.hears(m.Cancel(id="c", job_id=JOB, attempt=1))
    agent.took(fx.SignalTrainer)
    agent.ends(-15)
    agent.runs(2, timeout_s=100.0)
    agent.passes(99)
    assert not agent.took(fx.SignalTrainer)


def test_work_that_ends_well_in_the_last_moment_counts() -> None:
    """The signal came too late to matter."""
    agent = Agent()
    agent.runs(timeout_s=100.0)
    agent.passes(101)
    assert agent.finishes().artifact_id == HEX


def test_a_cancel_may_leave_what_is_finished() -> None:
    """Of a job that was given up: its result is still handed over."""
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
    agent.hears(m.Release(id=agent.new_id(), job_id=JOB, attempt=attempt, why="drained by al"))


def test_a_release_ends_the_trainer_and_gives_its_checkpoint_back() -> None:
    """SIGTERM once, however often it is asked; then the job with what it left off at."""
    agent = Agent()
    agent.runs()
    _release(agent)
    _release(agent)
    assert [one.kill for one in agent.took(fx.SignalTrainer)] == [False]
    released = agent.leaves_off(artifact_id=HEX)
    assert (released.reason, released.artifact_id) == ("drained by al", HEX)
    agent.assigned(2)
    assert agent.took(fx.StartTrainer), "a drain is the coordinator's business"
