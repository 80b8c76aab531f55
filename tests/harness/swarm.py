"""A busy fleet of simulated hosts on a real broker: one process that speaks for all of them.

The coordinator cannot tell them from agents; only the training is made up.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from broker.client.link import Link, LinkSettings
from broker.client.mailbox import Mailbox, feed
from broker.errors import BadMessage, BadTopic
from broker.protocol import messages as m
from broker.protocol.link_events import Connected, Incoming, LinkEvent, Outgoing
from broker.protocol.loglines import encode_lines
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topics
from broker.system.address import parse_addresses
from broker.system.machine import new_id
from coordinator.manifest.builtin import builtin_trainers
from tests.harness.swarm_hosts import GIB, MODELS_S, Host, Work, make_hosts

CHUNK_BYTES = 64 * 1024
REPORT_AGAIN_S = 10.0


class Swarm:
    """All hosts, one connection. `rng` decides what the hosts are like and how they fare.

    `names` take the place of those by kind.
    """

    def __init__(
        self,
        url: str,
        root: str,
        hosts: int,
        *,
        rng: random.Random,
        speed: float = 1.0,
        fail_rate: float = 0.02,
        beat_s: float = 2.0,
        asleep: int = 0,
        quiet: int = 0,
        names: Sequence[str] = (),
    ) -> None:
        self.topics = Topics(root)
        self.rng, self.speed, self.fail_rate, self.beat_s = rng, speed, fail_rate, beat_s
        made = make_hosts(hosts)
        for host, name in zip(made, names):
            host.name = name
        self.hosts = {host.name: host for host in made}
        for host in list(self.hosts.values())[:quiet]:
            host.refuses = (m.Why(code="quiet", by="manifest", until="2026-05-28T22:00"),)
        self._asleep = list(self.hosts)[len(self.hosts) - asleep :] if asleep else []
        self._trainers = builtin_trainers()
        self._mailbox: Mailbox[LinkEvent] = Mailbox()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.completed = 0
        self._link = Link(
            LinkSettings(parse_addresses(url), f"swarm-{new_id()[:8]}", self._filters()),
            feed(self._mailbox, self.topics),
        )

    def _filters(self) -> list[tuple[str, int]]:
        root = self.topics.root
        return [
            (f"{root}/+/job/request", 1),
            (f"{root}/+/artifact/+/grant", 1),
            (f"{root}/coordinator/status", 1),
        ]

    def run(self, until: Callable[[], bool]) -> None:
        """Be a fleet until a condition holds; then say goodbye."""
        self._link.start()
        self._at(time.monotonic() + self.beat_s, self._beat_all)
        try:
            while not until():
                wait_s = max(0.0, self._due[0][0] - time.monotonic()) if self._due else 1.0
                for event in self._mailbox.take(min(wait_s, 0.5)):
                    self._take(event)
                while self._due and self._due[0][0] <= time.monotonic():
                    heapq.heappop(self._due)[2]()
        finally:
            self._link.stop([self._status(host, "offline", "goodbye") for host in self._present()])

    def _present(self) -> list[Host]:
        return [host for host in self.hosts.values() if host.online]

    def _at(self, at_s: float, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (at_s, self._count, what))

    def _say(self, topic: str, message: m.Wire, qos: int = 1, *, retain: bool = False) -> None:
        self._link.publish(Outgoing(topic, m.encode(message), qos, retain))

    # What comes

    def _take(self, event: LinkEvent) -> None:
        if isinstance(event, Connected):
            for host in self._present():
                self._birth(host)
            for name in self._asleep:
                self._falls_asleep(self.hosts[name])
            self._asleep = []
        elif isinstance(event, Incoming):
            with contextlib.suppress(BadTopic, BadMessage):
                self._take_message(event)

    def _take_message(self, event: Incoming) -> None:
        topic = self.topics.parse(event.topic)
        host = self.hosts.get(topic.host)
        if topic.kind is Kind.COORDINATOR_STATUS:
            if m.decode(m.STATUS, event.payload).state == "online":
                for one in self._present():
                    self._birth(one)
        elif host is None or not host.online or event.retained:
            return
        elif topic.kind is Kind.REQUEST:
            self._take_request(host, m.decode(m.AGENT_REQUEST, event.payload))
        elif topic.kind is Kind.GRANT:
            self._take_grant(host, topic.artifact_id, m.decode(m.GRANT, event.payload))

    def _take_request(self, host: Host, request: m.AgentRequest) -> None:
        match request:
            case m.Assign():
                self._take_assign(host, request)
            case m.Cancel():
                host.works.pop(request.job_id, None)
                self._report(host, m.Stopped, request, request_id=request.id)
            case m.Rebirth():
                self._birth(host)
            case m.Noted():
                self._take_note(host, request)

    def _take_assign(self, host: Host, assign: m.Assign) -> None:
        if assign.instance != host.instance:
            return
        held = host.works.get(assign.job_id)
        if held is None or held.assign.attempt < assign.attempt:
            base_s = MODELS_S.get(assign.model, 120.0) / host.speed / self.speed
            boost = 4.0 if assign.use_cuda and assign.model not in {"gbt", "mlp"} else 1.0
            takes_s = base_s / boost * math.exp(self.rng.gauss(0.0, 0.25))
            fails = self.rng.random() < self.fail_rate
            work = Work(assign, time.monotonic(), takes_s * (0.3 if fails else 1.0), fails)
            work.data = f"{assign.job_id}{assign.attempt}".encode() * 20
            host.works[assign.job_id] = work
            self._at(work.begun_s + work.takes_s, lambda: self._ends(host, work))
        self._report(host, m.Accepted, assign, request_id=assign.id)
        self._report(host, m.Started, assign, slot=0, pid=4000 + self._count % 1000)

    def _take_note(self, host: Host, noted: m.Noted) -> None:
        work = host.works.get(noted.job_id)
        if work is None or work.assign.attempt != noted.attempt:
            return
        if noted.verdict in {"stored", "superseded"} or work.fails:
            del host.works[noted.job_id]
            self.completed += noted.verdict == "stored"

    def _take_grant(self, host: Host, artifact_id: str, grant: m.GrantMessage) -> None:
        found = [work for work in host.works.values() if work.artifact_id == artifact_id]
        if not found:
            return
        if isinstance(grant, m.Grant):
            found[0].phase = "uploading"
            for first, end in grant.missing:
                for index in range(first, end):
                    piece = found[0].data[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
                    topic = self.topics.chunk(host.name, artifact_id, index)
                    self._link.publish(Outgoing(topic, piece, 0))
        else:
            self._finished(host, found[0])

    # What is said

    def _report(self, host: Host, kind: Any, of: Any, **more: Any) -> None:
        report = kind(
            id=new_id(),
            session=host.session,
            instance=host.instance,
            job_id=of.job_id,
            attempt=of.attempt,
            **more,
        )
        self._say(self.topics.response(host.name), report)

    def _ends(self, host: Host, work: Work) -> None:
        if host.works.get(work.assign.job_id) is not work or not host.online:
            return
        if work.fails:
            self._report(
                host, m.Failed, work.assign, exit_code=1, transient=True,
                error="RuntimeError: CUDA error: an illegal memory access was encountered",
            )  # fmt: skip
        else:
            work.phase = "reporting"
            self._finished(host, work)

    def _finished(self, host: Host, work: Work) -> None:
        """Report it, and again: the coordinator may have no place for its artifact now."""
        if host.works.get(work.assign.job_id) is not work:
            return
        self._at(time.monotonic() + REPORT_AGAIN_S, lambda: self._finished(host, work))
        auroc = round(self.rng.uniform(0.85, 0.97), 4)
        self._report(
            host, m.Finished, work.assign, artifact_id=work.artifact_id,
            size_bytes=len(work.data), chunk_bytes=CHUNK_BYTES, metrics={"auroc": auroc},
        )  # fmt: skip

    def _birth(self, host: Host) -> None:
        link = self._status(host, "online", "birth")
        self._link.publish(link)
        self._say(
            self.topics.capability(host.name),
            m.Capability(
                session=host.session,
                instance=host.instance,
                description=host.description,
                os="Linux 6.6",
                arch="aarch64" if "pi" in host.name else "x86_64",
                python="3.12.7",
                physical_cores=host.cores,
                ram_total_bytes=int(host.ram_gib * GIB),
                ram_available_bytes=int(host.ram_gib * 0.8 * GIB),
                gpus=host.gpus(),
                trainers=self._trainers,
                data_id="swarm",
                battery="laptop" in host.name,
                agent_version="swarm",
            ),
            retain=True,
        )
        self._beat(host)

    def _status(self, host: Host, state: Any, reason: Any) -> Outgoing:
        status = m.Status(
            state=state, reason=reason, session=host.session, instance=host.instance,
            boot_id=f"boot-{host.name}",
        )  # fmt: skip
        return Outgoing(self.topics.status(host.name), m.encode(status), 1, retain=True)

    def _falls_asleep(self, host: Host) -> None:
        """Gone as a machine is whose lid was closed: its broker says so much later."""
        self._link.publish(self._status(host, "offline", "lost"))
        host.online = False

    def _beat_all(self) -> None:
        for host in self._present():
            self._beat(host)
        self._at(time.monotonic() + self.beat_s, self._beat_all)

    def _beat(self, host: Host) -> None:
        host.seq += 1
        held = []
        for work in host.works.values():
            share = min(1.0, (time.monotonic() - work.begun_s) / max(work.takes_s, 1e-3))
            held.append(
                m.HeldJob(
                    job_id=work.assign.job_id,
                    attempt=work.assign.attempt,
                    phase=work.phase,
                    progress=round(share, 3),
                )
            )
            if work.phase == "running":
                self._progress(host, work, share)
        beat = m.Heartbeat(
            session=host.session,
            instance=host.instance,
            seq=host.seq,
            ram_available_bytes=int(host.ram_gib * (0.6 if held else 0.85) * GIB),
            cpu_percent=85.0 if held else 3.0,
            load_1m=host.cores * 0.8 if held else 0.1,
            gpus=host.gpus(),
            jobs=tuple(held),
            refuses=host.refuses,
            suspended_s=600.0 if "laptop" in host.name else None,
        )
        self._say(self.topics.heartbeat(host.name), beat, 0)

    def _progress(self, host: Host, work: Work, share: float) -> None:
        epochs = int(work.assign.hyper.get("epochs", 60))  # type: ignore[arg-type] # ours
        progress = m.Progress(
            attempt=work.assign.attempt,
            epoch=int(share * epochs),
            epochs=epochs,
            train_loss=round(0.7 * math.exp(-3 * share) + 0.05, 4),
            val_loss=round(0.75 * math.exp(-2.5 * share) + 0.08, 4),
            eta_s=round(work.takes_s * (1 - share), 1),
        )
        self._say(self.topics.progress(host.name, work.assign.job_id), progress, 0, retain=True)
        line = f"epoch {progress.epoch}/{epochs}  train_loss {progress.train_loss}"
        topic = self.topics.log(host.name, work.assign.job_id)
        work.said += 1
        said = encode_lines(work.assign.attempt, work.said, [line.encode()])
        self._link.publish(Outgoing(topic, said, 0))
