"""An agent's core, driven without any IO: every message it sees or sends is encoded."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from agent.core.core_settings import CoreSettings
from agent.core.effects import (
    BundleCheckpoint,
    BundleMade,
    CheckpointBundled,
    Left,
    Look,
    Looked,
    MakeBundle,
    Measure,
    Probed,
    StartTrainer,
    Tick,
    TrainerExited,
    TrainerLine,
    TrainerStarted,
    Vitals,
)
from agent.core.reactor import Core
from broker.clock import Now
from broker.protocol import messages as m
from broker.protocol.link_events import Connected, Incoming, Outgoing
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topics

JOB, HEX = "1b" * 32, "5a" * 32
GIB = 1024**3
MONDAY = datetime(2026, 3, 2, 9, 0)  # noqa: DTZ001 - the clock on the wall has no zone
ADAPTERS = {
    Kind.STATUS: m.STATUS,
    Kind.CAPABILITY: m.CAPABILITY,
    Kind.HEARTBEAT: m.HEARTBEAT,
    Kind.PROGRESS: m.PROGRESS,
    Kind.CHECKPOINT_GRANT: m.GRANT,
}


def heard(kind: Kind, payload: bytes) -> Sequence[Any]:
    """Return what a message of an agent says: reports may come several in one."""
    if kind is Kind.RESPONSE:
        return m.decode_reports(payload)
    return [m.decode(ADAPTERS[kind], payload) if kind in ADAPTERS and payload else payload]


TRAINERS = {"gbt": m.TrainerInfo(hyper_schema={})}


def leased(core: Core, lease_s: float = 600.0) -> Incoming:
    """The coordinator's answer to what an agent has said last: all that it runs is its own."""
    lease = m.Lease(
        id="l", heard=next(reversed(core.state.sent_s)), lease_s=lease_s,
        jobs=tuple(
            m.LeasedJob(job_id=run.job_id, attempt=run.attempt)
            for run in core.state.runs.values()
        ),
    )  # fmt: skip
    return Incoming(Topics().request("pi"), m.encode(lease))


class Agent:
    """A core on host `pi`, its clock, and what it says and asks for."""

    def __init__(self, *spooled: Any, gpus: tuple[m.Gpu, ...] = (), slots: int = 1,
                 ram_gib: float = 8, disk_gib: float = 100, data: str | None = "d",
                 left: Left | None = None,
                 programs: m.ProgramsAllowed | None = None, instance: str = "i1",
                 alone: bool = True, **settings: Any) -> None:  # fmt: skip
        """One that is not `alone` is in a shell, which tells it of its `birth`."""
        self.topics = Topics()
        self.mono_s = 500.0
        self.ids = 0
        self.sent: list[tuple[Any, Any]] = []
        self.effects: list[Any] = []
        self.gpus, self.ram_gib, self.disk_gib, self.data = gpus, ram_gib, disk_gib, data
        self.seen = Looked(MONDAY)
        self.looked_for: list[Look] = []
        self.lease_s: float | None = 600.0  # what a coordinator grants; none: it does not answer
        self.core = Core(
            CoreSettings(host="pi", instance=instance, boot_id="b", **settings),
            self.topics, left or Left(spooled), rng=random.Random(1), new_id=self.new_id,
        )  # fmt: skip
        self.core.begin(self.now)
        self.birth = (Connected("s1"), Probed(m.Capability(
            session="-", instance="-", os="o", arch="a", python="3", physical_cores=4,
            ram_total_bytes=16 * GIB, ram_available_bytes=8 * GIB, gpus=gpus, trainers=TRAINERS,
            data_id=data, slots=slots, programs=programs,
        )))  # fmt: skip
        for event in self.birth if alone else ():
            self.handle(event)

    def new_id(self) -> str:
        self.ids += 1
        return f"id{self.ids}"

    @property
    def now(self) -> Now:
        return Now(self.mono_s, self.mono_s)

    @property
    def local(self) -> datetime:
        """What the clock on the wall says; at the start it is nine on a Monday."""
        return MONDAY + timedelta(seconds=self.mono_s - 500.0)

    def handle(self, event: Any) -> None:
        """Feed an event; what is to be measured is measured at once."""
        self.core.handle(event, self.now)
        measure = look = False
        leases: list[m.Lease] = []
        self.core.state.reports_due |= bool(self.core.state.reports)  # nobody waits here
        for effect in self.core.take():
            if isinstance(effect, Outgoing):
                topic = self.topics.parse(effect.topic)
                for said in heard(topic.kind, effect.payload):
                    self.sent.append((topic, said))
                    leases += self._leased(said)
            elif isinstance(effect, Measure):
                measure = True
            elif isinstance(effect, Look):
                look = True
                self.looked_for.append(effect)
            else:
                self.effects.append(effect)
        for lease in leases:
            self.hears(lease)
        if measure:
            self.handle(Vitals(
                int(self.ram_gib * GIB), self.data, gpus=self.gpus,
                disk_free_bytes=int(self.disk_gib * GIB),
            ))  # fmt: skip
        if look:
            self.handle(replace(self.seen, local=self.local))

    def _leased(self, said: Any) -> list[m.Lease]:
        """What a coordinator answers at once that has given the jobs to nobody else."""
        if self.lease_s is None or not isinstance(said, m.Accepted | m.Heartbeat):
            return []
        heard = said.id if isinstance(said, m.Accepted) else str(said.seq)
        held = (said,) if isinstance(said, m.Accepted) else said.jobs
        jobs = tuple(m.LeasedJob(job_id=one.job_id, attempt=one.attempt) for one in held)
        return [m.Lease(id="l", heard=heard, lease_s=self.lease_s, jobs=jobs)]

    def passes(self, seconds: float) -> None:
        """Time passes; every timer that comes due is served at its time."""
        end_s = self.mono_s + seconds
        while (due_s := self.core.next_deadline()) is not None and due_s <= end_s:
            self.mono_s = max(self.mono_s, due_s)
            self.handle(Tick())
        self.mono_s = end_s

    def hears(self, request: Any) -> None:
        self.handle(Incoming(self.topics.request("pi"), m.encode(request)))

    def assigned(self, attempt: int = 1, **more: Any) -> m.Assign:
        fields = {"name": "job", "model": "gbt", "mode": "oracle"} | more
        assign = m.Assign(id=self.new_id(), job_id=JOB, attempt=attempt, instance="i1", **fields)
        self.hears(assign)
        return assign

    def said(self, kind: type[Any]) -> list[Any]:
        """Take what was said of a kind."""
        found = [one for _, one in self.sent if isinstance(one, kind)]
        self.sent = [pair for pair in self.sent if not isinstance(pair[1], kind)]
        return found

    def took(self, kind: type[Any]) -> list[Any]:
        found = [one for one in self.effects if isinstance(one, kind)]
        self.effects = [one for one in self.effects if not isinstance(one, kind)]
        return found

    def runs(self, attempt: int = 1, **more: Any) -> None:
        self.assigned(attempt, **more)
        assert self.took(StartTrainer)
        self.handle(TrainerStarted(JOB, attempt, 77))

    def ends(self, code: int = 0, attempt: int = 1, *lines: str) -> None:
        for line in lines:
            self.handle(TrainerLine(JOB, attempt, line))
        self.handle(TrainerExited(JOB, attempt, code))

    def finishes(self, attempt: int = 1, size_bytes: int = 2000) -> m.Finished:
        """It ends well, and its bundle is made."""
        self.ends(0, attempt, '{"event":"result","metrics":{"auroc":0.9},"files":[]}')
        assert self.took(MakeBundle)
        self.handle(BundleMade(JOB, attempt, HEX, size_bytes))
        return self.said(m.Finished)[0]

    def leaves_off(self, attempt: int = 1, artifact_id: str | None = None) -> m.Released:
        """It ends since it was asked to, and its checkpoint, if any, is bundled."""
        self.ends(75, attempt)
        assert self.took(BundleCheckpoint)
        size_bytes = 0 if artifact_id is None else 2000
        self.handle(CheckpointBundled(JOB, attempt, artifact_id, size_bytes))
        return self.said(m.Released)[0]

    def noted(self, report: Any, verdict: Any, state: Any = None) -> None:
        self.hears(m.Noted(
            id=self.new_id(), report_id=report.id, job_id=JOB, attempt=report.attempt,
            verdict=verdict, state=state,
        ))  # fmt: skip

    def granted(self, grant: Any) -> None:
        self.handle(Incoming(self.topics.grant("pi", HEX), m.encode(grant)))

    def phase(self) -> str | None:
        """What the next heartbeat says of the job."""
        self.said(m.Heartbeat)
        self.passes(31)
        jobs = self.said(m.Heartbeat)[-1].jobs
        return jobs[0].phase if jobs else None
