"""A coordinator's shell on a real ledger and a real store; its clock and its threads are ours."""

from __future__ import annotations

import base64
import hashlib
import itertools
import random
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from broker.clock import Now
from broker.programs.trust import Verify
from broker.protocol import messages as m
from broker.protocol.link_events import Connected, Incoming, Outgoing
from broker.protocol.signing import OperatorKey, signed_by
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topics
from coordinator.core.core_settings import CoreSettings
from coordinator.core.effects import ManifestRead
from coordinator.core.reactor import Core
from coordinator.jobs.jobs import Job
from coordinator.jobs.plan_entries import JobSpec, Plan
from coordinator.ledger.ledger import FILE_NAME, Ledger
from coordinator.service.performer import Surroundings
from coordinator.service.shell import Shell
from coordinator.store.joblog import JobLogs
from coordinator.store.store import Store
from tests.harness.coordinator import ADAPTERS, OPERATOR, Fleet, Host, spec
from tests.harness.disks import FullDisk

DATA = b"weights" * 40
ID = hashlib.sha256(DATA).hexdigest()


class Coordinator:
    """See the module; `settings` are more of `CoreSettings`."""

    opened: ClassVar[list[Ledger]] = []
    skew_s = 0.0  # by which the wall clock was set
    face: Any = None

    def __init__(self, folder: Path, *specs: JobSpec, root: str = "fleet", **settings: Any) -> None:
        self.folder, self.topics, self.disk = folder, Topics(root), FullDisk()
        self.sent: list[tuple[Any, Any]] = []
        self.chunks: list[bytes] = []
        self.inbox: deque[Any] = deque()
        self.slow: deque[Callable[[], None]] = deque()  # what a thread of its own would do
        self.reads: deque[Callable[[], None]] = deque()  # what the manifest's thread would do
        self.verify: Verify | None = None  # by default each signature counts
        self.mono_s = 0.0
        self._ids = itertools.count()
        self._plan = Plan(specs or (spec(),))
        self.settings = CoreSettings.model_construct(instance="c", boot_id="b", **settings)
        self.start()

    def start(self) -> None:
        """Start (again) in the same folder."""
        around = Surroundings(
            topics=self.topics, disk=self.disk, rng=random.Random(1), new_id=self.new_id,
            publish=self._publish, put=self.put, background=self.slow.append,
            writing=self.slow.append, read_plan=lambda _: self.plan(), reading=self.read,
            verify=self._verify,
        )  # fmt: skip
        self.ledger = Ledger(self.folder / FILE_NAME)
        self.opened.append(self.ledger)
        self.store = Store(self.folder, self.disk)
        self.shell = Shell(
            self.settings, around, self.ledger, self.store,
            JobLogs(self.folder / "logs", 9999), self.now, face=self.face,
        )  # fmt: skip
        self.handle(Connected(self.new_id()), ManifestRead(self.plan()))

    def plan(self) -> Plan:
        return self._plan

    def put(self, event: Any) -> None:
        self.inbox.append(event)

    def _verify(self, *signed: Any) -> None:
        if self.verify is not None:
            self.verify(*signed)

    def read(self, work: Callable[[], None]) -> None:
        self.reads.append(work)

    @property
    def core(self) -> Core:
        return self.shell.core

    @property
    def now(self) -> Now:
        return Now(self.mono_s, 1.8e9 + self.mono_s + self.skew_s)

    def new_id(self) -> str:
        return f"id{next(self._ids)}"

    def handle(self, *events: Any) -> None:
        self.shell.turn(events, self.now)

    def files(self) -> None:
        """The other threads do what they were given; what comes of it is taken in."""
        while self.slow or self.reads or self.inbox:
            while self.slow or self.reads:
                (self.slow or self.reads).popleft()()
            if self.inbox:
                events = [*self.inbox]
                self.inbox.clear()
                self.handle(*events)

    def passes(self, seconds: float) -> None:
        """Time passes without a turn, as in a suspension; then there is one."""
        self.mono_s += seconds
        self.handle()

    def waits(self, seconds: float) -> None:
        """Time passes; every turn that is wanted is given at its time."""
        end_s = self.mono_s + seconds
        while (due_s := self.shell.next_deadline()) is not None and due_s < end_s:
            self.mono_s = max(self.mono_s, due_s)
            self.handle()
        self.mono_s = end_s
        self.handle()

    def takes_in(self) -> None:
        """What other threads have told so far is taken in, and none of them goes on."""
        while self.inbox:
            self.handle(self.inbox.popleft())

    def job(self, name: str = "job") -> Job:
        """A job, as the ledger has it."""
        return next(job for job in self.ledger.load().values() if job.spec.name == name)

    def crashes(self) -> Coordinator:
        """The process ends here; another one starts."""
        self.ledger.close()
        return Coordinator(self.folder)

    def host(self, name: str = "pi") -> Host:
        return Host(cast("Fleet", self), name)

    def tells(self, ask: Any) -> None:
        """An operator asks, with a signature where there is a key."""
        topic, key = self.topics.operator_request(OPERATOR), self.settings.operator_key
        signed = ask if key is None else signed_by(key, topic, ask, self.now.wall_s)
        self.handle(Incoming(topic, m.encode(signed)))

    def answers(self) -> list[m.OperatorResponse]:
        found = [said for topic, said in self.sent if topic.kind is Kind.OPERATOR_RESPONSE]
        self.sent = [one for one in self.sent if one[0].kind is not Kind.OPERATOR_RESPONSE]
        return found

    def asks(self, ask: Any) -> Any:
        """An operator asks; the answer, none without one."""
        self.answers()
        self.tells(ask)
        return next(iter(self.answers()), None)

    def fetched(self) -> bytes:
        """What an operator gets who grants the only chunk of a download."""
        self.chunks.clear()
        grant = m.encode(m.Grant(missing=((0, 1),), horizon=1, window_chunks=4))
        self.handle(Incoming(self.topics.download_grant(OPERATOR), grant))
        return b"".join(self.chunks)

    def _publish(self, *messages: Outgoing) -> bool:
        for message in messages:
            topic = self.topics.parse(message.topic)
            if topic.kind in {Kind.DOWNLOAD_CHUNK, Kind.CHECKPOINT_CHUNK}:
                self.chunks.append(message.payload)
            elif topic.kind in ADAPTERS and message.payload:
                self.sent.append((topic, m.decode(ADAPTERS[topic.kind], message.payload)))
        return True


def signing(folder: Path) -> Coordinator:
    """One that wants signatures and has a manifest."""
    return Coordinator(folder, manifest="plan.toml", operator_key=OperatorKey("k" * 64))


@pytest.fixture(autouse=True)
def ledgers_closed() -> Iterator[None]:
    """Those of all coordinators of a test."""
    yield
    while Coordinator.opened:
        Coordinator.opened.pop().close()


def reports(host: Host, job: Job, data: bytes = DATA, **more: Any) -> list[str]:
    """A host reports it finished, with a bundle; what it is answered."""
    host.heard(m.Noted)
    host.reports(
        m.Finished, job, artifact_id=hashlib.sha256(data).hexdigest(), size_bytes=len(data),
        bundle=base64.b64encode(data).decode(), **more,
    )  # fmt: skip
    return [one.verdict for one in host.heard(m.Noted)]


def finished(folder: Path) -> Coordinator:
    """A coordinator which has just been told so, and has not made a file of it."""
    coordinator = Coordinator(folder)
    pi = coordinator.host().joins()
    assert reports(pi, pi.runs()) == ["stored"]
    assert coordinator.job().state == "completed"
    assert not coordinator.store.has(ID)
    return coordinator


@contextmanager
def refusing(ledger: Path) -> Iterator[None]:
    """Somebody else writes to the ledger, and is at it."""
    other = sqlite3.connect(ledger, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()
