"""A job goes on where an earlier attempt left off: the agent's side."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core import effects as fx
from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from broker.protocol.topic_table import Kind
from tests.harness.agent import HEX, JOB, Agent

PART = fx.Part.CHECKPOINT
MISSING = fx.Missing(HEX, 2000, 1024)
CHECKPOINT = m.Checkpoint(artifact_id=HEX, size_bytes=2000, chunk_bytes=1024, attempt=1)


def chunk(agent: Agent, index: int, data: bytes) -> None:
    agent.handle(Incoming(agent.topics.checkpoint_chunk("pi", HEX, index), data))


def fetching(**more: Any) -> Agent:
    """An agent that has been given the second attempt, and fetches what the first left off at."""
    agent = Agent()
    agent.assigned(2, checkpoint=CHECKPOINT, **more)
    assert [one.part for one in agent.took(fx.FindPart)] == [PART]
    agent.handle(fx.PartFound(JOB, 2, PART, MISSING))
    assert not agent.took(fx.StartTrainer)
    return agent


def test_an_agent_that_leaves_hands_the_checkpoint_over_first() -> None:
    """It is uploaded as a result is, and the agent's patience begins anew with it."""
    agent = Agent()
    agent.runs()
    agent.handle(fx.Shutdown())
    agent.passes(9)
    released = agent.leaves_off(artifact_id=HEX)
    assert (released.artifact_id, released.size_bytes) == (HEX, 2000)
    agent.granted(m.Grant(missing=((0, 1),), horizon=1, window_chunks=16))
    assert [sent.artifact_id for sent in agent.took(fx.SendChunk)] == [HEX]
    agent.passes(30)
    assert not agent.took(fx.Leave)
    agent.noted(released, "stored", "pending")
    assert agent.took(fx.Leave)
    assert agent.took(fx.ClearJob) == [fx.ClearJob(JOB, 1, HEX)]
    assert not agent.took(fx.DropCheckpoint), "the job may come back to this host"


def test_an_agent_does_not_wait_for_ever_for_its_checkpoint_to_be_taken() -> None:
    """A coordinator that is gone does not keep a machine from shutting down."""
    agent = Agent()
    agent.runs()
    agent.handle(fx.Shutdown())
    agent.leaves_off(artifact_id=HEX)
    agent.passes(61)
    assert agent.took(fx.Leave)


def test_a_checkpoint_is_fetched_before_the_trainer_starts() -> None:
    """Granted, written piece by piece, installed; the heartbeat says what is going on."""
    agent = fetching()
    assert agent.phase() == "fetching"
    assert agent.said(m.Grant)[0].missing == ((0, 2),)
    chunk(agent, 1, b"y" * 976)
    chunk(agent, 0, b"x" * 1024)
    assert [(one.offset, len(one.data)) for one in agent.took(fx.WriteFetched)] == [
        (1024, 976),
        (0, 1024),
    ]
    assert [(one.part, one.artifact_id) for one in agent.took(fx.InstallPart)] == [(PART, HEX)]
    assert agent.said(m.Stored), "the sender may forget it"
    agent.handle(fx.PartFound(JOB, 2, PART))
    assert agent.took(fx.StartTrainer)


def test_what_is_lost_of_a_checkpoint_is_asked_for_again() -> None:
    agent = fetching()
    agent.said(m.Grant)
    chunk(agent, 0, b"x" * 1024)
    agent.passes(5)
    assert agent.said(m.Grant)[-1].missing == ((1, 2),)


@pytest.mark.parametrize("how", ["nothing comes", "it is damaged"])
def test_a_checkpoint_that_cannot_be_had_costs_time_and_not_the_job(how: str) -> None:
    agent = fetching()
    if how == "nothing comes":
        agent.passes(61)
    else:
        agent.handle(fx.PartFound(JOB, 2, PART, fault=m.Fault(code="bad-content")))
    assert agent.took(fx.StartTrainer)
    assert agent.took(fx.GiveUpFetch)
    agent.passes(1)
    lines = [said for topic, said in agent.sent if topic.kind is Kind.LOG]
    assert b"starts anew" in lines[0]
    chunk(agent, 0, b"x" * 1024)
    assert not agent.took(fx.WriteFetched), "what comes now is late"


@pytest.mark.parametrize(("state", "dropped"), [("failed", True), ("pending", False)])
def test_a_checkpoint_is_kept_as_long_as_the_job_may_go_on(state: str, *, dropped: bool) -> None:
    """A retry goes on where the failed attempt had been; a job that is over needs nothing."""
    agent = Agent()
    agent.runs()
    agent.ends(1)
    agent.noted(agent.said(m.Failed)[0], "recorded", state)
    assert bool(agent.took(fx.DropCheckpoint)) == dropped


def test_a_checkpoint_that_rots_before_it_is_handed_over_is_left_out() -> None:
    agent = Agent()
    agent.runs()
    agent.handle(fx.Shutdown())
    agent.leaves_off(artifact_id=HEX)
    agent.granted(m.Rejected(reason="corrupt"))
    agent.handle(fx.BundleChecked(JOB, 1, whole=False))
    assert agent.said(m.Released)[-1].artifact_id is None
