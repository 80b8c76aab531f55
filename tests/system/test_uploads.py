"""Artifacts on their way home: large ones, killed programs, lost and repeated chunks.

A finished bundle is laid into an agent's spool as if an earlier process had left it there, so that
no hours of training are needed for a large one.
"""

from __future__ import annotations

import hashlib
import random
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from broker.protocol.messages import Finished, encode
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
