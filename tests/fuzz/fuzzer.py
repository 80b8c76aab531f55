"""Feeds mutated messages to every decoder and to both cores, and looks at what they change."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from agent.core.effects import Missing, Part, PartFound
from agent.core.effects import Warn as AgentWarn
from broker.errors import BadMessage
from broker.protocol import messages as m
from broker.protocol.asyncapi import CONTENTS
from broker.protocol.link_events import Incoming
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topics
from coordinator.core.effects import Warn
from tests.harness.agent import Agent
from tests.harness.coordinator import HEX, Fleet, spec

from .mutate import mutate_bytes, mutate_json, mutate_topic

ADAPTERS: dict[Kind, TypeAdapter[Any]] = {
    kind: content for kind, (content, _) in CONTENTS.items() if isinstance(content, TypeAdapter)
}
FRESH_EVERY = 400


@dataclass
class Tally:
    sent: int = 0
    refused: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


def samples() -> list[tuple[str, bytes]]:
    """Return valid messages, as a life of a small fleet makes them, with their topics."""
    found: list[tuple[str, bytes]] = []
    fleet, agent = _fleet(found), _agent(found)
    asked = m.CertificateRequest(id="c1", request="-----BEGIN CERTIFICATE REQUEST-----")
    found.append((fleet.topics.identity_request("h1"), m.encode(asked)))
    given = m.CertificateResponse(id="c1", certificate="-----BEGIN CERTIFICATE-----")
    found.append((agent.topics.identity_response("pi"), m.encode(given)))
    del fleet, agent
    return list(dict.fromkeys(found))


def _fleet(record: list[tuple[str, bytes]]) -> Fleet:
    """A coordinator with a job in each state; an upload, a download, a checkpoint under way."""
    fleet = Fleet(*(spec(f"job{n}") for n in range(6)), spec("gpu", require_cuda=True))
    handle = fleet.handle

    def recording(event: Any) -> None:
        if isinstance(event, Incoming):
            record.append((event.topic, event.payload))
        handle(event)

    fleet.handle = recording  # type: ignore[method-assign]
    fleet.core.world.stored[HEX] = 2000
    hosts = [fleet.host(f"h{n}").joins() for n in range(4)]
    names = [
        next(j.spec.name for j in fleet.ledger.values() if j.host == f"h{n}") for n in range(4)
    ]
    hosts[0].finishes(hosts[0].runs(names[0]))
    job = hosts[1].runs(names[1])
    hosts[1].beats((job.job_id, 1, "running"))
    fleet.core.world.stored.clear()
    hosts[1].finishes(job)
    hosts[1].uploads()
    hosts[2].reports(m.Failed, hosts[2].runs(names[2]), error="e", exit_code=2, transient=False)
    given = hosts[3].runs(names[3])
    hosts[3].gives_back(given, "7c" * 32)
    grant = m.Grant(missing=((0, 1),), horizon=1, window_chunks=4)
    hosts[3].says(fleet.topics.checkpoint_grant("h3", "7c" * 32), grant)
    for ask in (
        m.AskStatus(id="1"), m.AskList(id="2"), m.AskShow(id="3", job="job5"),
        m.AskWhy(id="4", job="gpu"), m.AskWorkers(id="5"), m.AskCancel(id="6", job="job5"),
        m.AskRequeue(id="7", job=names[2]), m.AskReload(id="8"), m.AskTrainers(id="9"),
        m.AskDrain(id="10", host="h2"), m.AskResume(id="11", host="h2"),
        m.AskFetch(id="12", job=names[0]), m.AskLogs(id="13", job=names[1]),
        m.AskEvents(id="14", job=names[0], who="operator", since=1.8e9, after=(3, 4)),
        m.AskCancel(id="15", job=names[3], auth=m.Auth(at=1.8e9, mac="a" * 64)),
        m.AskRun(id="16", job={"model": "gbt", "mode": "oracle", "hyper": {"a": [1.5, "b"]}}),
        m.AskDrain(id="17", host="h1", now=True), m.AskSnooze(id="18", host="h3", for_s=60.0),
        m.AskPause(id="19"), m.AskPause(id="20", off=True),
        m.AskEach(id="21", action="requeue", jobs=("job5", names[1]), states=("failed",)),
        m.AskCurves(id="22", jobs=(job.job_id,)),
    ):  # fmt: skip
        fleet.asks(ask)
    hosts[1].says(fleet.topics.progress("h1", job.job_id), m.Progress(attempt=1, epoch=1, epochs=2))
    record.append((fleet.topics.log("h1", job.job_id), b"1.1 epoch 1"))
    record += [(m_topic, m.encode(said)) for m_topic, said in _published(fleet)]
    fleet.handle = handle  # type: ignore[method-assign]
    fleet.sent.clear()
    fleet.effects.clear()
    return fleet


def _published(fleet: Fleet) -> list[tuple[str, Any]]:
    topics = fleet.topics
    makers: dict[Kind, Callable[[Any], str]] = {
        Kind.REQUEST: lambda t: topics.request(t.host),
        Kind.GRANT: lambda t: topics.grant(t.host, t.artifact_id),
        Kind.JOB: lambda t: topics.job(t.job_id),
        Kind.SUMMARY: lambda _: topics.summary(),
        Kind.COORDINATOR_STATUS: lambda _: topics.coordinator_status(),
        Kind.OPERATOR_RESPONSE: lambda t: topics.operator_response(t.host),
    }
    return [(makers[topic.kind](topic), said) for topic, said in fleet.sent if topic.kind in makers]


def _agent(record: list[tuple[str, bytes]]) -> Agent:
    """An agent with a running job, one whose bundle is uploaded, one that fetches a checkpoint."""
    agent = Agent(slots=3)
    handle = agent.handle

    def recording(event: Any) -> None:
        if isinstance(event, Incoming):
            record.append((event.topic, event.payload))
        handle(event)

    agent.handle = recording  # type: ignore[method-assign]
    agent.runs()
    agent.finishes()
    agent.granted(m.Grant(missing=((0, 1),), horizon=1, window_chunks=4))
    agent.hears(m.Assign(
        id="z", job_id="cc" * 32, attempt=1, instance="i1", name="n", model="gbt", mode="oracle",
    ))  # fmt: skip
    checkpoint = m.Checkpoint(artifact_id="7c" * 32, size_bytes=2000, chunk_bytes=1024, attempt=1)
    agent.hears(m.Assign(
        id="y", job_id="ee" * 32, attempt=2, instance="i1", name="n", model="gbt", mode="oracle",
        checkpoint=checkpoint,
    ))  # fmt: skip
    agent.handle(PartFound("ee" * 32, 2, Part.CHECKPOINT, Missing("7c" * 32, 2000, 1024)))
    topic = agent.topics.checkpoint_chunk("pi", checkpoint.artifact_id, 0)
    agent.handle(Incoming(topic, bytes(1024)))
    agent.hears(m.Cancel(id="c", job_id="dd" * 32, attempt=1))
    agent.hears(m.Release(id="e", job_id="cc" * 32, attempt=1, why=m.Why(code="drained")))
    rules = m.HostRules(quiet_hours=("Sat,Sun 10:00-11:00",), idle_only=True)
    agent.hears(m.Rules(id="u", digest="d", rules=rules))
    agent.hears(m.Rebirth(id="r"))
    status = m.Status(state="online", session="c1", instance="c", boot_id="b")
    agent.handle(Incoming(agent.topics.coordinator_status(), m.encode(status)))
    agent.handle = handle  # type: ignore[method-assign]
    agent.sent.clear()
    agent.effects.clear()
    return agent


class Fuzzer:
    """Draws messages from a seed and feeds them to every target in turn."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._samples = samples()
        self._payloads = [payload for _, payload in self._samples if payload[:1] == b"{"]
        self._topics = [topic for topic, _ in self._samples]
        self.tallies: dict[str, Tally] = {}
        self.kinds: Counter[str] = Counter()
        self._fleet: Fleet | None = None
        self._agent: Agent | None = None

    def run(self, messages: int) -> None:
        """Feed so many; a message counts once for each target that it is given to."""
        was = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            self._feed_all(messages)
        finally:
            logging.disable(was)

    def _feed_all(self, messages: int) -> None:
        fed = 0
        while fed < messages:
            if fed % FRESH_EVERY == 0 or self._fleet is None or self._agent is None:
                self._fleet, self._agent = _fleet([]), _agent([])
            kind, topic, payload = self._draw()
            fed += self._decoders(kind, payload)
            fed += self._coordinator(self._fleet, topic, payload)
            fed += self._agents(self._agent, topic, payload)

    def _draw(self) -> tuple[Kind, str, bytes]:
        rng = self._rng
        topic, payload = rng.choice(self._samples)
        kind = Topics().parse(topic).kind
        level = rng.choices(("bytes", "json", "topic", "both"), (4, 5, 2, 1))[0]
        self.kinds[level] += 1
        if level in {"topic", "both"}:
            topic = mutate_topic(rng, topic, self._topics)
        if level in {"bytes", "both"}:
            payload = mutate_bytes(rng, payload, self._payloads)
        if level == "json" and payload[:1] == b"{":
            payload = mutate_json(rng, payload, self._payloads)
        return kind, topic, payload

    def _decoders(self, kind: Kind, payload: bytes) -> int:
        """Its own decoder mostly, and now and then another's."""
        if kind not in ADAPTERS or self._rng.random() < 0.2:
            kind = self._rng.choice(list(ADAPTERS))
        tally = self.tallies.setdefault(f"decoder {kind.value}", Tally())
        begun_s = time.perf_counter()
        try:
            m.decode(ADAPTERS[kind], payload)
        except BadMessage as error:
            tally.refused += 1
            if len(str(error)) > 400:
                tally.faults.append(f"an error of {len(str(error))} characters")
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            tally.faults.append(f"{type(error).__name__} for {payload[:200]!r}")
        tally.sent += 1
        tally.seconds += time.perf_counter() - begun_s
        return 1

    def _coordinator(self, fleet: Fleet, topic: str, payload: bytes) -> int:
        dropped = fleet.core.world.dropped
        name = "coordinator's core"
        self._feed(name, fleet, topic, payload, dropped, Warn, lambda: _fleet_digest(fleet))
        return 1

    def _agents(self, agent: Agent, topic: str, payload: bytes) -> int:
        dropped = agent.core.state.dropped
        name = "agent's core"
        self._feed(name, agent, topic, payload, dropped, AgentWarn, lambda: _agent_digest(agent))
        return 1

    def _feed(
        self,
        name: str,
        target: Fleet | Agent,
        topic: str,
        payload: bytes,
        dropped: Counter[str],
        warn: type,
        digest: Callable[[], object],
    ) -> None:
        tally = self.tallies.setdefault(name, Tally())
        drops, before, core = dropped.total(), digest(), target.core
        what = f"{topic[:90]!r} {payload[:300]!r}"
        begun_s = time.perf_counter()
        try:
            core.handle(Incoming(topic, payload), target.now)
            taken: Any = core.take()
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            tally.faults.append(f"{type(error).__name__}: {error} for {what}")
            self._fleet = self._agent = None
            return
        finally:
            tally.sent += 1
            tally.seconds += time.perf_counter() - begun_s
        changes, effects = taken if isinstance(target, Fleet) else ([], taken)
        if dropped.total() > drops:
            tally.refused += 1
            if changes or digest() != before:
                tally.faults.append(f"garbage has changed something: {what}")
            if any(not isinstance(effect, warn) for effect in effects):
                tally.faults.append(f"garbage has had effects: {effects[:3]} {what}")
        if len(dropped) > len(Kind) + 4:
            tally.faults.append("the counters of dropped messages grow with their content")


def _fleet_digest(fleet: Fleet) -> object:
    world = fleet.core.world
    return (
        [(job.job_id, job.state, job.attempt, job.host) for job in world.book.all()],
        [
            (host.name, host.online, host.session, host.instance, len(host.progress))
            for host in world.hosts.values()
        ],
        *(len(getattr(world, name)) for name in ("claims", "expected", "uploads", "downloads")),
        {*world.stored}, {*world.records}, len(world.answers),
    )  # fmt: skip


def _agent_digest(agent: Agent) -> object:
    state = agent.core.state
    return (
        [(run.job_id, run.attempt, run.phase, run.stopping) for run in state.runs.values()],
        [(one.report.id, one.sender is None) for one in state.owed.values()],
        len(state.ended), len(state.waiting), state.coordinator,
    )  # fmt: skip
