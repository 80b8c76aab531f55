"""Artifacts on their way home: large ones, killed programs, lost and repeated chunks.

A finished bundle is laid into an agent's spool as if an earlier process had left it there, so that
no hours of training are needed for a large one.
"""

from __future__ import annotations

import hashlib
import random
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from broker.client.link import Link, LinkSettings
from broker.client.mailbox import Mailbox, feed
from broker.protocol.events import Connected, Incoming, LinkEvent, Outgoing
from broker.protocol.messages import GRANT, Finished, Grant, decode, encode
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topics
from broker.stream.stream import SendChunk, Sender
from broker.system.address import parse_addresses
from broker.system.machine import new_id
from coordinator.core.receipts import receipt
from coordinator.service.state_files import load_key

MIB = 1024 * 1024
GATED = 'name = "big"\nmodel = "gbt"\nmode = "oracle"\nrequire_cuda = true'


def _spool(fleet: Any, host: str, job_id: str, size_bytes: int) -> str:
    """Lay a finished bundle of random bytes into a host's spool; return its id."""
    spool = fleet.tmp / host / "spool"
    spool.mkdir(parents=True)
    rng = random.Random(7)
    digest = hashlib.sha256()
    making = spool / "bundle"
    with making.open("wb") as file:
        for start in range(0, size_bytes, MIB):
            block = rng.randbytes(min(MIB, size_bytes - start))
            digest.update(block)
            file.write(block)
    artifact_id = digest.hexdigest()
    making.rename(spool / f"{artifact_id}.tar.zst")
    # It is as if the ledger had been restored: the coordinator has given this attempt, and lost it.
    given = receipt(load_key(fleet.tmp / "coordinator"), host, job_id, 1)
    report = Finished(
        id=new_id(), session="-", instance="-", job_id=job_id, attempt=1, receipt=given,
        artifact_id=artifact_id, size_bytes=size_bytes, metrics={"auroc": 0.5},
    )  # fmt: skip
    (spool / f"{job_id}.1.json").write_bytes(encode(report))
    return artifact_id


def _stored(fleet: Any, artifact_id: str) -> Path:
    path: Path = fleet.tmp / "coordinator/models/gbt_oracle" / artifact_id / "bundle.tar.zst"
    return path


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(MIB):
            digest.update(block)
    return digest.hexdigest()


class _Peak:
    """Watches the resident memory of processes while something goes on."""

    def __init__(self, *pids: int) -> None:
        self._processes = [psutil.Process(pid) for pid in pids]
        self.idle = [process.memory_info().rss for process in self._processes]
        self.peak = list(self.idle)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            for index, process in enumerate(self._processes):
                self.peak[index] = max(self.peak[index], process.memory_info().rss)

    def growth(self) -> list[int]:
        self._stop.set()
        self._thread.join()
        return [peak - idle for peak, idle in zip(self.peak, self.idle, strict=True)]


@pytest.mark.slow
def test_300_mb_come_home_in_bounded_memory(fleet: Any, wait_for: Any) -> None:
    """Neither side holds more than its window and buffers (S8), whatever the artifact's size."""
    fleet.plan(GATED)
    coordinator = fleet.coordinator()
    job_id = fleet.until("big", "pending")["job_id"]
    idle = fleet.agent("pi")
    wait_for(lambda: fleet.status()["hosts"]["online"] == 1, "the agent")
    idle.stop()
    fleet.programs.remove(idle)
    for path in (fleet.tmp / "pi").glob("spool"):
        path.rmdir()
    artifact_id = _spool(fleet, "pi", job_id, 300 * MIB)
    before = psutil.Process(coordinator.process.pid).memory_info().rss
    agent = fleet.agent("pi", wait=False)
    peak = _Peak(agent.process.pid, coordinator.process.pid)
    row = fleet.until("big", "completed")
    grown = peak.growth()
    assert row["artifact_id"] == artifact_id
    assert _sha256(_stored(fleet, artifact_id)) == artifact_id
    # The agent was watched from its first moment, so that its own modules count as well.
    assert grown[0] < 100 * MIB, [size // MIB for size in grown]
    assert peak.peak[1] - before < 64 * MIB, [size // MIB for size in peak.peak]


@pytest.mark.parametrize("victim", ["agent", "coordinator"])
def test_a_killed_side_goes_on_where_the_part_file_stands(
    fleet: Any, wait_for: Any, victim: str
) -> None:
    """SIGKILL in mid-upload: the upload resumes (S5) and the artifact is whole."""
    fleet.plan(GATED)
    coordinator = fleet.coordinator(window_bytes=131072)
    job_id = fleet.until("big", "pending")["job_id"]
    artifact_id = _spool(fleet, "pi", job_id, 96 * MIB)
    agent = fleet.agent("pi", wait=False, chunk_bytes=65536)
    part = fleet.tmp / "coordinator" / "incoming" / f"{artifact_id}.part"
    listed = part.with_suffix(".json")
    wait_for(lambda: listed.exists() and part.stat().st_size > 20 * MIB, "the upload's middle")
    (agent if victim == "agent" else coordinator).kill()
    assert part.exists(), "the upload was over before the kill"
    inode = part.stat().st_ino
    if victim == "agent":
        fleet.agent("pi", chunk_bytes=65536)
    else:
        fleet.coordinator(window_bytes=131072)
    fleet.until("big", "completed")
    stored = _stored(fleet, artifact_id)
    assert _sha256(stored) == artifact_id
    assert stored.stat().st_ino == inode, "it started over in a new file"


def test_what_does_not_fit_beside_the_reserve_waits(fleet: Any, wait_for: Any) -> None:
    """It is told with the figures, and comes home once there is room."""
    fleet.plan(GATED)
    coordinator = fleet.coordinator(reserve_bytes=1 << 49)
    job_id = fleet.until("big", "pending")["job_id"]
    artifact_id = _spool(fleet, "pi", job_id, MIB)
    fleet.agent("pi", wait=False)
    wait_for(lambda: "no_room" in fleet.why("big"), "the disk's refusal")
    lack = fleet.why("big")["no_room"]
    assert (lack["needed_bytes"], lack["reserve_bytes"]) == (MIB, 1 << 49)
    assert 0 < lack["free_bytes"] < 1 << 49
    assert fleet.status()["coordinator"]["disk_fault"] == {"code": "low", "jobs": 1, **lack}
    assert fleet.show("big")["state"] == "running"
    coordinator.stop()
    fleet.coordinator()
    assert fleet.until("big", "completed")["artifact_id"] == artifact_id


class _Peer:
    """An agent of this test's own, which loses and repeats chunks on purpose."""

    def __init__(self, fleet: Any, host: str, content: bytes, job_id: str) -> None:
        self._topics = Topics(fleet.root)
        self._host, self._content, self._job_id = host, content, job_id
        self._receipt = receipt(load_key(fleet.tmp / "coordinator"), host, job_id, 1)
        self._id = hashlib.sha256(content).hexdigest()
        self._rng = random.Random(3)
        self._mailbox: Mailbox[LinkEvent] = Mailbox()
        self.lost = self.repeated = 0
        self._link = Link(
            LinkSettings(
                parse_addresses(fleet.broker_url),
                f"peer-{fleet.root}",
                self._topics.for_agent(host),
            ),
            feed(self._mailbox, self._topics),
        )

    def hand_over(self) -> None:
        """Report the job finished, then upload until that is noted."""
        self._link.start()
        sender = Sender(len(self._content), 65536, 65536)
        deadline_s = time.monotonic() + 60
        over = False
        while not over:
            assert time.monotonic() < deadline_s, "never stored"
            for event in self._mailbox.take(0.05):
                if not isinstance(event, Incoming):
                    self._say_finished()
                    continue
                topic = self._topics.parse(event.topic)
                over |= topic.kind is Kind.REQUEST and b'"stored"' in event.payload
                if topic.kind is Kind.GRANT:
                    grant = decode(GRANT, event.payload)
                    assert isinstance(grant, Grant)
                    self._send(sender.on_grant(grant, time.monotonic()))
            self._send(sender.on_timer(time.monotonic()))
        self._link.stop()

    def _say_finished(self) -> None:
        report = Finished(
            id=new_id(), session="-", instance="-", job_id=self._job_id, attempt=1,
            artifact_id=self._id, size_bytes=len(self._content), chunk_bytes=65536,
            receipt=self._receipt,
        )  # fmt: skip
        self._link.publish(Outgoing(self._topics.response(self._host), encode(report)))

    def _send(self, chunks: list[SendChunk]) -> None:
        for chunk in chunks:
            fate = self._rng.random()
            topic = self._topics.chunk(self._host, self._id, chunk.index)
            data = self._content[chunk.offset : chunk.offset + chunk.length]
            times = 0 if fate < 0.2 else 2 if fate > 0.8 else 1
            for _ in range(times):
                self._link.publish(Outgoing(topic, data, 0))
            self.lost += times == 0
            self.repeated += times == 2


def test_lost_and_repeated_chunks_do_no_harm(fleet: Any) -> None:
    """A fifth lost, a fifth sent twice (S3, S4): the artifact is whole all the same."""
    fleet.plan(GATED)
    fleet.coordinator()
    job_id = fleet.until("big", "pending")["job_id"]
    content = random.Random(5).randbytes(8 * MIB + 12345)
    peer = _Peer(fleet, "pi", content, job_id)
    peer.hand_over()
    row = fleet.until("big", "completed")
    assert peer.lost > 10
    assert peer.repeated > 10
    assert _stored(fleet, row["artifact_id"]).read_bytes() == content


def test_a_bundle_that_broke_on_the_agents_disk_is_owned_up(fleet: Any) -> None:
    """Its hash does not fit (S6): the agent looks at its own file and reports the job failed."""
    fleet.plan(GATED + "\nretries = 0")
    fleet.coordinator()
    job_id = fleet.until("big", "pending")["job_id"]
    artifact_id = _spool(fleet, "pi", job_id, 3 * MIB)
    bundle = fleet.tmp / "pi" / "spool" / f"{artifact_id}.tar.zst"
    with bundle.open("r+b") as file:
        file.seek(MIB)
        file.write(b"\0" * 16)
    fleet.agent("pi")
    row = fleet.until("big", "failed")
    assert "damaged on this host's disk" in row["error"]
    assert not list((fleet.tmp / "coordinator" / "incoming").glob("*.part"))


def test_what_the_store_has_is_not_sent_again(fleet: Any, short: str) -> None:
    """A second job run to the same bytes is answered `stored` (S7), and sends no chunk."""
    fleet.plan(short)
    fleet.coordinator()
    fleet.agent()
    first = fleet.until("gbt-oracle", "completed")
    chunks: list[str] = []
    watcher = _Watcher(fleet, f"{fleet.root}/+/artifact/#", chunks)
    fleet.requeue("gbt-oracle")
    fleet.until("gbt-oracle", lambda row: row["state"] == "completed" and row["attempt"] == 2)
    watcher.stop()
    assert not [topic for topic in chunks if "/chunk/" in topic]
    assert first["artifact_id"] == fleet.show("gbt-oracle")["artifact_id"]


class _Watcher:
    """Collects the topics of what passes."""

    def __init__(self, fleet: Any, name: str, into: list[str]) -> None:
        connected = threading.Event()

        def put(*events: LinkEvent) -> None:
            into.extend(event.topic for event in events if isinstance(event, Incoming))
            if any(isinstance(event, Connected) for event in events):
                connected.set()

        self._link = Link(
            LinkSettings(parse_addresses(fleet.broker_url), f"w-{fleet.root}", [(name, 0)]), put
        )
        self._link.start()
        assert connected.wait(60)

    def stop(self) -> None:
        self._link.stop()
