"""An agent that has to end before a result is bundled: its next process bundles it."""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from agent.core.core_settings import CoreSettings
from agent.core.effects import Looked, Probed, Shutdown, TrainerExited, TrainerLine, Vitals
from agent.core.reactor import Core
from agent.service.shell import Shell, Surroundings
from agent.spool.spool import Spool
from broker.clock import Now
from broker.protocol import messages as m
from broker.protocol.link_events import Connected, Incoming, Outgoing
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topics
from tests.harness.agent import GIB, JOB, MONDAY, TRAINERS, leased, parts_of

DONE = '{"event":"result","metrics":{"auroc":0.9},"files":[]}'
WEIGHTS = b"weights" * 4000


class Child:
    trainer_pid = 77

    def send_signal(self, *, kill: bool) -> None:
        """It does not listen."""

    def wait(self, timeout_s: float) -> None:
        """Nothing is waited for."""


class Process:
    """One process of an agent, with its real core, shell and spool; its worker may be slow."""

    def __init__(self, state: Path, instance: str, *, slow: bool) -> None:
        self.state, self.topics, self.now_s = state, Topics(), 500.0
        self.slow, self.sent, self.started, self.ids = slow, [], 0, 0
        self.events: list[Any] = []
        self.spool = Spool(state)
        spooled = self.spool.load()
        unbundled = self.spool.load_unbundled(spooled)
        self.spool.clear_work(unbundled)
        core = Core(
            CoreSettings(host="pi", instance=instance, boot_id="b"), self.topics, spooled,
            unbundled, rng=random.Random(1), new_id=self.new_id,
        )  # fmt: skip
        around = Surroundings(
            self.topics, publish=self._publish, put=self.events.append,
            background=self._background, measure=self._measure, start=self._start,
            look=lambda _: self.events.append(Looked(MONDAY)),
        )  # fmt: skip
        core.begin(Now(self.now_s, self.now_s))
        self.shell = Shell(core, around, self.spool, parts_of(state))
        self.takes(Connected(f"s-{instance}"), Probed(m.Capability(
            session="-", instance="-", os="o", arch="a", python="3", physical_cores=4,
            ram_total_bytes=16 * GIB, ram_available_bytes=8 * GIB, trainers=TRAINERS, data_id="d",
        )))  # fmt: skip

    def new_id(self) -> str:
        self.ids += 1
        return f"id{self.ids}"

    def _publish(self, message: Outgoing) -> bool:
        self.sent.append(message)
        return True

    def _background(self, work: Callable[[], None]) -> None:
        if not self.slow:
            work()

    def _measure(self, gpus: tuple[m.Gpu, ...]) -> None:
        self.events.append(Vitals(8 * GIB, "d", gpus=gpus))

    def _start(self, _: object) -> tuple[Child, bool]:
        self.started += 1
        return Child(), False

    def takes(self, *events: Any) -> None:
        """Some events come, and what comes of them."""
        self.events += events
        while self.events:
            taken, self.events[:] = list(self.events), []
            self.shell.turn(taken, Now(self.now_s, self.now_s))

    def passes(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while (due_s := self.shell.next_deadline()) is not None and due_s <= end_s:
            self.now_s = max(self.now_s, due_s)
            self.shell.turn([], Now(self.now_s, self.now_s))
            self.takes()
        self.now_s = end_s

    def trains(self) -> None:
        """It is given the job, whose trainer writes its result and ends well."""
        assign = m.Assign(
            id="a", job_id=JOB, attempt=1, instance="one", name="job", model="gbt", mode="oracle",
            receipt="5a" * 16,
        )  # fmt: skip
        self.takes(Incoming(self.topics.request("pi"), m.encode(assign)))
        self.takes(leased(self.shell.core))
        out = self.spool.work(JOB, 1) / "out"
        out.mkdir(parents=True)
        (out / "model.ubj").write_bytes(WEIGHTS)
        self.takes(TrainerLine(JOB, 1, DONE))
        self.now_s += 60.0

    def said(self) -> list[Any]:
        said: list[Any] = []
        for one in self.sent:
            kind = self.topics.parse(one.topic).kind
            if kind is Kind.RESPONSE:
                said += m.decode_reports(one.payload)
            elif kind is Kind.HEARTBEAT:
                said.append(m.decode(m.HEARTBEAT, one.payload))
        return said


@pytest.mark.parametrize("told", ["while it bundles", "while it trains"])
def test_a_result_that_could_not_be_bundled_is_handed_over_by_the_next_process(
    told: str, tmp_path: Path
) -> None:
    one = Process(tmp_path, "one", slow=True)
    one.trains()
    exited = TrainerExited(JOB, 1, 0)
    one.takes(*([exited, Shutdown()] if told == "while it bundles" else [Shutdown(), exited]))
    one.passes(20)
    assert one.shell.left, "nobody waits for ever"
    goodbye = one.shell.goodbye()
    assert goodbye is not None
    owed = (m.OwedResult(job_id=JOB, attempt=1),)
    assert m.decode(m.STATUS, goodbye.payload).owes == owed

    two = Process(tmp_path, "two", slow=True)
    two.passes(1)
    (held,) = [said for said in two.said() if isinstance(said, m.Heartbeat)][-1].jobs
    assert (held.job_id, held.attempt, held.phase) == (JOB, 1, "bundling")

    three = Process(tmp_path, "three", slow=False)
    (finished,) = [said for said in three.said() if isinstance(said, m.Finished)]
    assert (finished.attempt, finished.metrics, finished.ran_s) == (1, {"auroc": 0.9}, 60.0)
    assert (finished.instance, finished.receipt) == ("three", "5a" * 16)
    assert not two.started + three.started
    bundle = (
        zstandard.ZstdDecompressor()
        .decompressobj()
        .decompress(three.spool.read_whole(finished.artifact_id))
    )
    with tarfile.open(fileobj=io.BytesIO(bundle)) as tar:
        (file,) = tar.getmembers()
        source = tar.extractfile(file)
        assert source is not None
        assert source.read() == WEIGHTS
    noted = m.Noted(
        id="n", report_id=finished.id, job_id=JOB, attempt=1, verdict="stored", state="completed"
    )
    three.takes(Incoming(three.topics.request("pi"), m.encode(noted)))
    assert not three.spool.work_folders()


def test_a_result_that_was_bundled_in_time_is_not_bundled_again(tmp_path: Path) -> None:
    one = Process(tmp_path, "one", slow=False)
    one.trains()
    one.takes(Shutdown(), TrainerExited(JOB, 1, 0))
    two = Process(tmp_path, "two", slow=False)
    assert len([said for said in two.said() if isinstance(said, m.Finished)]) == 1
    assert not two.spool.work_folders()

    one = Process(tmp_path / "other", "one", slow=True)
    one.trains()
    one.takes(TrainerExited(JOB, 1, 0))
    cancel = m.Cancel(id="c", job_id=JOB, attempt=1)
    one.takes(Incoming(one.topics.request("pi"), m.encode(cancel)), Shutdown())
    one.passes(20)
    goodbye = one.shell.goodbye()
    assert goodbye is not None
    assert not m.decode(m.STATUS, goodbye.payload).owes
    assert not Process(tmp_path / "other", "two", slow=False).spool.work_folders()


@pytest.mark.parametrize("content", [b"", b"{", b'{"assign": {}}', b"[" * 10_000])
def test_what_is_not_usable_is_deleted_and_the_job_trained_anew(
    content: bytes, tmp_path: Path
) -> None:
    one = Process(tmp_path, "one", slow=True)
    one.trains()
    (one.spool.work(JOB, 1) / "unbundled.json").write_bytes(content)
    two = Process(tmp_path, "two", slow=False)
    assert not two.spool.work_folders()
    assert not [said for said in two.said() if isinstance(said, m.Finished)]
