"""The agent's core: births, heartbeats, shutdown."""

from __future__ import annotations

import random

from agent.core import effects as fx
from agent.core.core_settings import CoreSettings
from agent.core.reactor import Core
from broker.clock import Now
from broker.protocol import messages as m
from broker.protocol.link_events import Connected, Incoming, Outgoing
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topics
from tests.harness.agent import JOB, Agent


def test_an_edited_trainer_is_told_once_and_takes_the_jobs_of_its_new_version() -> None:
    agent = Agent()
    agent.sent.clear()
    for _ in range(2):
        agent.handle(fx.Vitals(8 << 30, "d", versions={"gbt": "b"}))
    (said,) = agent.said(m.Capability)
    assert said.trainers["gbt"].version == "b"
    agent.assigned(version="b")
    assert agent.said(m.Accepted)


def test_a_coordinator_that_has_another_connection_knows_what_its_hosts_are() -> None:
    """P4: that is nearly all of a birth's bytes; what it holds and owes is told again."""
    agent = Agent()
    agent.runs()
    agent.sent.clear()
    topic = agent.topics.coordinator_status()
    online = m.Status(state="online", session="c1", instance="c", boot_id="b")
    agent.handle(Incoming(topic, m.encode(online)))
    agent.passes(0.6)
    assert len(agent.said(m.Capability)) == 1, "it may know nothing of us"
    finished = agent.finishes()
    agent.granted(m.Grant(missing=((0, 1),), horizon=1, window_chunks=4))
    agent.sent.clear()
    for _ in range(3):
        agent.handle(Incoming(topic, m.encode(online.model_copy(update={"session": "c2"}))))
    agent.passes(0.6)
    assert len(agent.said(m.Status)) == 1
    assert agent.said(m.Heartbeat)[-1].jobs[0].phase == "reporting"
    assert agent.said(m.Finished)[0].id == finished.id
    assert not agent.said(m.Capability)
    agent.hears(m.Rebirth(id="r"))
    assert agent.said(m.Capability), "it had to ask"
    other = online.model_copy(update={"session": "c3", "instance": "d"})
    agent.handle(Incoming(topic, m.encode(other)))
    agent.passes(0.6)
    assert agent.said(m.Capability)
    assert agent.core.state.capability is not None
    agent.handle(fx.Probed(agent.core.state.capability))
    agent.sent.clear()
    agent.handle(Incoming(topic, m.encode(other.model_copy(update={"session": "c4"}))))
    agent.passes(0.6)
    assert agent.said(m.Capability), "it may have been away when that was said"


def test_a_coordinator_that_was_there_before_has_heard_the_birth() -> None:
    """P4: its retained status is no news, or every reconnect would state everything twice."""
    agent = Agent()
    agent.sent.clear()
    online = m.Status(state="online", session="c2", instance="c", boot_id="b")
    topic = agent.topics.coordinator_status()
    agent.handle(Incoming(topic, m.encode(online), retained=True))
    agent.passes(0.6)
    assert not agent.said(m.Status)
    agent.handle(Incoming(topic, m.encode(online)))
    agent.passes(0.6)
    assert not agent.said(m.Status)


def test_a_shutdown_gives_the_job_back_and_says_so_first() -> None:
    agent = Agent()
    agent.runs()
    agent.said(m.Heartbeat)
    agent.handle(fx.Shutdown())
    assert agent.said(m.Heartbeat)[0].refuses
    agent.assigned(1)
    agent.hears(m.Assign(
        id="z", job_id="cc" * 32, attempt=1, instance="i1", name="n", model="gbt", mode="oracle",
    ))  # fmt: skip
    assert (m.Why(code="leaving"),) in [one.holds for one in agent.said(m.Refused)[0].reasons]
    released = agent.leaves_off()
    assert not agent.took(fx.Leave)
    agent.noted(released, "recorded")
    assert agent.took(fx.Leave)

    stubborn = Agent()
    stubborn.runs()
    stubborn.handle(fx.Shutdown())
    stubborn.passes(20)
    assert stubborn.took(fx.Leave), "a trainer that does not end keeps the agent"


def test_a_coordinator_that_is_heard_before_we_are_connected_is_no_harm() -> None:
    """A retained message may come first; the birth waits for the connection."""
    core = Core(
        CoreSettings(host="pi", instance="i1", boot_id="b"),
        Topics(),
        fx.Left(),
        rng=random.Random(1),
        new_id=lambda: "x",
    )
    now = Now(1.0, 1.0)
    status = m.Status(state="online", session="c1", instance="c", boot_id="b")
    core.handle(Incoming(Topics().coordinator_status(), m.encode(status), retained=True), now)
    core.handle(fx.Tick(), Now(9.0, 9.0))
    assert not [effect for effect in core.take() if isinstance(effect, Outgoing)]
    core.handle(Connected("s1"), Now(10.0, 10.0))
    assert [effect.topic for effect in core.take() if isinstance(effect, Outgoing)]


def test_one_heartbeat_tells_of_many_changes() -> None:
    """What an assignment is judged by is no news; that it was taken is told within a second."""
    agent = Agent()
    agent.said(m.Heartbeat)
    agent.assigned()
    agent.handle(fx.TrainerStarted(JOB, 1, 77))
    assert not agent.said(m.Heartbeat)
    agent.passes(1)
    assert [[job.phase for job in beat.jobs] for beat in agent.said(m.Heartbeat)] == [["running"]]


def test_garbage_is_counted_and_told_once() -> None:
    agent = Agent()
    for _ in range(3):
        agent.handle(Incoming(agent.topics.request("pi"), b"{"))
    assert len(agent.took(fx.Warn)) == 1, "further ones are only counted"
    agent.passes(31)
    assert agent.said(m.Heartbeat)[-1].dropped == 3


def test_a_progress_that_nobody_has_told_is_not_cleared() -> None:
    """But for what an earlier agent, which was killed, may have left on the broker."""
    for attempt, lines, cleared in ((1, (), False), (1, ("phase",), True), (2, (), True)):
        agent = Agent()
        agent.runs(attempt=attempt)
        agent.ends(0, attempt, *(f'{{"event":"{one}","phase":"train"}}' for one in lines))
        said = [said for topic, said in agent.sent if topic.kind is Kind.PROGRESS]
        assert (b"" in said) == cleared
