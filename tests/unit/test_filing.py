"""A small artifact is durable with the commit that completes its job, and becomes a file later."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import random
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from broker.clock import Now
from broker.protocol import messages as m
from broker.protocol.events import Connected, Incoming, Outgoing
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topics
from coordinator.admin import __main__ as maintenance
from coordinator.core.effects import BundleRefused, ManifestRead
from coordinator.core.filing import AT_ONCE, HANGS_S, LET_GO_S, RETRY_S
from coordinator.core.reactor import COLLECT_FIRST_S, Core
from coordinator.core.state import CoreSettings
from coordinator.jobs.jobs import Job
from coordinator.jobs.plan_entries import JobSpec, Plan
from coordinator.jobs.records import BundleKept
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
    """A shell on a real ledger and a real store; its clock and its threads are ours."""

    opened: ClassVar[list[Ledger]] = []

    def __init__(self, folder: Path, *specs: JobSpec) -> None:
        """Start (again) in a folder."""
        self.folder, self.topics, self.disk = folder, Topics(), FullDisk()
        self.sent: list[tuple[Any, Any]] = []
        self.chunks: list[bytes] = []
        self.events: deque[Any] = deque()
        self.slow: deque[Callable[[], None]] = deque()  # what a thread of its own would do
        self.mono_s, self.skew_s = 0.0, 0.0  # by which the wall clock was set
        self._ids = itertools.count()
        around = Surroundings(
            topics=self.topics, disk=self.disk, rng=random.Random(1), new_id=self.new_id,
            publish=self._publish, put=self.events.append, background=self.slow.append,
            writing=self.slow.append, read_plan=lambda _: None,
        )  # fmt: skip
        self.ledger = Ledger(folder / FILE_NAME)
        self.opened.append(self.ledger)
        self.store = Store(folder, self.disk)
        self.shell = Shell(
            CoreSettings("c", "b"), around, self.ledger, self.store,
            JobLogs(folder / "logs", 9999), self.now,
        )  # fmt: skip
        self.handle(Connected("s"), ManifestRead(Plan(specs or (spec(),))))

    @property
    def core(self) -> Core:
        return self.shell.core

    @property
    def now(self) -> Now:
        return Now(self.mono_s, 1.8e9 + self.mono_s + self.skew_s)

    def new_id(self) -> str:
        return f"id{next(self._ids)}"

    def handle(self, *events: Any) -> None:
        """One turn."""
        self.shell.turn(events, self.now)

    def files(self) -> None:
        """The other thread does what it was given; what comes of it is taken in."""
        while self.slow or self.events:
            while self.slow:
                self.slow.popleft()()
            if self.events:
                events = [*self.events]
                self.events.clear()
                self.handle(*events)

    def passes(self, seconds: float) -> None:
        """Time passes, and a timer comes due."""
        self.mono_s += seconds
        self.handle()

    def disk_fault(self) -> Any:
        """What `fleet status` says of the disk."""
        ask = m.encode(m.AskStatus(id=self.new_id()))
        self.handle(Incoming(self.topics.operator_request(OPERATOR), ask))
        said = [one for topic, one in self.sent if topic.kind is Kind.OPERATOR_RESPONSE][-1]
        return said.data["coordinator"]["disk_fault"]

    def takes_in(self) -> None:
        """What other threads have told so far is taken in, and none of them goes on."""
        while self.events:
            self.handle(self.events.popleft())

    def job(self, name: str = "job") -> Job:
        """A job, as the ledger has it."""
        return next(job for job in self.ledger.load().values() if job.spec.name == name)

    def crashes(self) -> Coordinator:
        """The process ends here; another one starts."""
        self.ledger.close()
        return Coordinator(self.folder)

    def host(self) -> Host:
        """A host, which speaks to it."""
        return Host(cast("Fleet", self), "pi")

    def _publish(self, *messages: Outgoing) -> bool:
        for message in messages:
            topic = self.topics.parse(message.topic)
            if topic.kind is Kind.DOWNLOAD_CHUNK:
                self.chunks.append(message.payload)
            elif topic.kind in ADAPTERS and message.payload:
                self.sent.append((topic, m.decode(ADAPTERS[topic.kind], message.payload)))
        return True


@pytest.fixture(autouse=True)
def ledgers_closed() -> Iterator[None]:
    """Those of all coordinators of a test."""
    yield
    while Coordinator.opened:
        Coordinator.opened.pop().close()


def reports(host: Host, job: Job) -> list[str]:
    """A host reports it finished, with a bundle; what it is answered."""
    host.heard(m.Noted)
    host.reports(
        m.Finished, job, artifact_id=ID, size_bytes=len(DATA),
        bundle=base64.b64encode(DATA).decode(),
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


def fsck(folder: Path) -> int:
    """The exit code of a check of everything."""
    return maintenance.main(["fsck", "--state", str(folder)])


def test_it_becomes_a_file_and_the_ledger_lets_go_of_it(tmp_path: Path) -> None:
    """Without being asked, and nothing stays behind."""
    coordinator = finished(tmp_path)
    coordinator.files()
    path = coordinator.store.path_of(ID)
    assert path is not None
    assert path.read_bytes() == DATA
    assert coordinator.ledger.bundle(ID) is not None
    coordinator.passes(1.5)
    assert coordinator.ledger.bundle_sizes() == {}
    assert fsck(tmp_path) == 0


@pytest.mark.parametrize("filed", [False, True])
def test_a_crash_before_the_ledger_has_let_go_loses_nothing(
    tmp_path: Path, *, filed: bool
) -> None:  # fmt: skip
    """Whether the file was there already or not: the next start has one."""
    coordinator = finished(tmp_path)
    if filed:
        coordinator.files()
    again = coordinator.crashes()
    assert again.job().artifact_id == ID
    again.files()
    again.passes(1.5)
    path = again.store.path_of(ID)
    assert path is not None
    assert path.read_bytes() == DATA
    assert again.ledger.bundle_sizes() == {}


def test_what_is_no_file_yet_is_there_all_the_same(tmp_path: Path) -> None:
    """For whoever fetches it, and for whoever checks the folder."""
    coordinator = finished(tmp_path)
    topic = coordinator.topics.operator_request(OPERATOR)
    coordinator.handle(Incoming(topic, m.encode(m.AskFetch(id="f", job="job", chunk_bytes=1024))))
    grant = m.encode(m.Grant(missing=((0, 1),), horizon=1, window_chunks=4))
    coordinator.handle(Incoming(coordinator.topics.download_grant(OPERATOR), grant))
    assert b"".join(coordinator.chunks) == DATA
    assert fsck(tmp_path) == 0


def test_a_disk_that_refuses_is_asked_again(tmp_path: Path) -> None:
    """The job is completed all the same; the file is made when there is room."""
    coordinator = finished(tmp_path)
    coordinator.disk.full = True
    coordinator.files()
    coordinator.passes(1.5)
    assert coordinator.ledger.bundle(ID) is not None
    coordinator.disk.full = False
    coordinator.passes(RETRY_S)
    coordinator.files()
    coordinator.passes(1.5)
    assert coordinator.store.has(ID)
    assert coordinator.ledger.bundle_sizes() == {}


def test_old_things_are_collected_while_it_waits_for_its_file(tmp_path: Path) -> None:
    """The disk may be full for long: the index has its row before and after."""
    coordinator = finished(tmp_path)
    coordinator.passes(7 * 3600)
    coordinator.files()
    coordinator.passes(1.5)
    (row,) = (tmp_path / "models" / "index.jsonl").read_text().splitlines()
    assert json.loads(row)["artifact_id"] == ID
    assert fsck(tmp_path) == 0


def test_the_same_bytes_again_do_not_wait_for_the_file(tmp_path: Path) -> None:
    """A second training that comes to the same result finds it in the ledger."""
    coordinator = finished(tmp_path)
    topic = coordinator.topics.operator_request(OPERATOR)
    coordinator.handle(Incoming(topic, m.encode(m.AskRequeue(id="r", job="job"))))
    pi = coordinator.host().joins()
    assert reports(pi, pi.runs()) == ["stored"]
    assert coordinator.job().state == "completed"


def test_a_report_without_its_bundle_is_answered_from_the_ledger(tmp_path: Path) -> None:
    """Of an agent whose broker takes small packets only: it need not offer what is there."""
    coordinator = finished(tmp_path)
    topic = coordinator.topics.operator_request(OPERATOR)
    coordinator.handle(Incoming(topic, m.encode(m.AskRequeue(id="r", job="job"))))
    pi = coordinator.host().joins()
    job = pi.runs()
    pi.heard(m.Noted)
    pi.reports(m.Finished, job, artifact_id=ID, size_bytes=len(DATA))
    assert [one.verdict for one in pi.heard(m.Noted)] == ["stored"]
    assert coordinator.job().state == "completed"


def test_that_it_was_lost_is_not_believed_once_it_has_come_again(tmp_path: Path) -> None:
    """A report had it looked for again, which tells of a time before the ledger had it."""
    coordinator = finished(tmp_path)
    coordinator.files()
    coordinator.passes(1.5)
    path = coordinator.store.path_of(ID)
    assert path is not None
    path.unlink()  # somebody deletes it by hand
    topic = coordinator.topics.operator_request(OPERATOR)
    coordinator.handle(Incoming(topic, m.encode(m.AskRequeue(id="r", job="job"))))
    pi = coordinator.host().joins()
    job = pi.runs()
    reports(pi, job)
    reports(pi, job)
    (look,) = coordinator.slow  # one, however often a report is repeated
    coordinator.slow.clear()
    look()
    reports(pi, job)
    (again,) = coordinator.slow
    coordinator.slow.clear()
    coordinator.handle(coordinator.events.popleft())
    assert reports(pi, job) == ["stored"]
    again()
    coordinator.handle(coordinator.events.popleft())
    coordinator.files()
    coordinator.passes(2)
    fetch = m.encode(m.AskFetch(id="f", job="job", chunk_bytes=1024))
    coordinator.handle(Incoming(topic, fetch))
    grant = m.encode(m.Grant(missing=((0, 1),), horizon=1, window_chunks=4))
    coordinator.handle(Incoming(coordinator.topics.download_grant(OPERATOR), grant))
    assert b"".join(coordinator.chunks) == DATA


def test_what_was_filed_and_comes_again_is_kept_until_it_is_filed_again(tmp_path: Path) -> None:
    """Nobody wanted it for a moment, in which the ledger was about to let go of it."""
    coordinator = Coordinator(tmp_path)
    coordinator.passes(COLLECT_FIRST_S - LET_GO_S / 2)
    pi = coordinator.host().joins()
    reports(pi, pi.runs())
    coordinator.files()
    topic = coordinator.topics.operator_request(OPERATOR)
    coordinator.handle(Incoming(topic, m.encode(m.AskRequeue(id="r", job="job"))))
    coordinator.passes(LET_GO_S * 0.6)  # what nobody wants is collected
    assert reports(pi, pi.runs()) == ["stored"]
    coordinator.passes(LET_GO_S)
    assert coordinator.ledger.bundle(ID) is not None
    coordinator.files()
    coordinator.passes(2 * LET_GO_S)
    assert coordinator.ledger.bundle_sizes() == {}


def test_however_many_wait_a_restart_takes_some_at_a_time(tmp_path: Path) -> None:
    """After a disk was full for long there may be more than belongs into memory."""
    ledger = Ledger(tmp_path / FILE_NAME)
    many = [bytes([n % 256, n // 256]) * 9 for n in range(2 * AT_ONCE + 3)]
    kept = [BundleKept(hashlib.sha256(one).hexdigest(), one, "gbt", "oracle") for one in many]
    ledger.commit(kept)
    ledger.close()
    coordinator = Coordinator(tmp_path)
    assert len(coordinator.slow) == AT_ONCE
    coordinator.files()
    coordinator.passes(1.5)
    assert all(coordinator.store.has(one.artifact_id) for one in kept)
    assert coordinator.ledger.bundle_sizes() == {}


def test_a_disk_that_hangs_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs are completed all the same; what the ledger keeps becomes files when it is back."""
    monkeypatch.setattr("coordinator.store.writer.MAX_WAITING", 4)
    coordinator = Coordinator(tmp_path)
    pi = coordinator.host().joins()
    topic = coordinator.topics.operator_request(OPERATOR)
    count = 10
    for number in range(count):
        job = pi.runs()
        data = bytes([number]) * m.MAX_SMALL_BYTES
        pi.reports(
            m.Finished, job, artifact_id=hashlib.sha256(data).hexdigest(), size_bytes=len(data),
            bundle=base64.b64encode(data).decode(),
        )  # fmt: skip
        assert coordinator.job().state == "completed"
        coordinator.takes_in()
        again = m.AskRequeue(id=coordinator.new_id(), job="job")
        coordinator.handle(Incoming(topic, m.encode(again)))
    assert len(coordinator.slow) == 4
    for _ in range(20):
        coordinator.passes(RETRY_S)
        coordinator.takes_in()
    assert len(coordinator.slow) == 4
    assert coordinator.disk_fault()["small"] == count
    for _ in range(count):
        coordinator.files()
        coordinator.passes(RETRY_S)
    assert coordinator.ledger.bundle_sizes() == {}
    assert len(coordinator.store.sizes()) == count


def test_the_status_says_how_the_disk_of_the_store_is(tmp_path: Path) -> None:
    """That it hangs, that it refuses, and nothing when all is well."""
    coordinator = finished(tmp_path)
    coordinator.passes(HANGS_S - 1)
    assert coordinator.disk_fault() is None
    coordinator.passes(1)
    assert coordinator.disk_fault() == {"code": "hangs", "silent_s": 30, "small": 1}
    coordinator.disk.full = True
    coordinator.files()
    assert coordinator.disk_fault() == {"code": "refuses", "small": 1}
    coordinator.disk.full = False
    coordinator.passes(RETRY_S)
    coordinator.files()
    assert coordinator.disk_fault() is None


def test_a_disk_that_goes_on_refusing_is_tried_every_half_minute(tmp_path: Path) -> None:
    """However many more it refuses in between."""
    coordinator = finished(tmp_path)
    coordinator.disk.full = True
    coordinator.files()
    coordinator.passes(RETRY_S - 1)
    coordinator.handle(BundleRefused(ID))
    coordinator.disk.full = False
    coordinator.passes(1)
    coordinator.files()
    assert coordinator.store.has(ID)
