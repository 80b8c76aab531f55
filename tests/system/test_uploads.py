"""Artifacts on their way home: large ones, killed programs, lost and repeated chunks.

A finished bundle is laid into an agent's spool as if an earlier process had left it there, so that
no hours of training are needed for a large one.
"""

from __future__ import annotations

import hashlib
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from broker.protocol.messages import Finished, encode
from broker.system.machine import new_id
from coordinator.core.receipts import receipt
from coordinator.service.state_files import load_key

MIB = 1024 * 1024
GATED = 'name = "big"\nmodel = "gbt"\nmode = "oracle"\nrequire_cuda = true'


def lay_in_spool(fleet: Any, host: str, job_id: str, size_bytes: int) -> str:
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


def stored_at(fleet: Any, artifact_id: str) -> Path:
    path: Path = fleet.tmp / "coordinator/models/gbt_oracle" / artifact_id / "bundle.tar.zst"
    return path


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def memory_bytes(pid: int, what: str) -> int:
    """The memory that a process has, `VmRSS`, or has had at most, `VmHWM`."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it tells the most memory of a process")
def test_300_mb_come_home_in_bounded_memory(fleet: Any, wait_for: Any) -> None:
    """Neither side holds more than its window and buffers (S8), whatever the artifact's size."""
    fleet.plan(GATED)
    coordinator = fleet.coordinator().process.pid
    job_id = fleet.until("big", "pending")["job_id"]
    idle = fleet.agent("pi")
    wait_for(lambda: fleet.status()["hosts"]["online"] == 1, "the agent")
    idle.stop()
    fleet.programs.remove(idle)
    for path in (fleet.tmp / "pi").glob("spool"):
        path.rmdir()
    artifact_id = lay_in_spool(fleet, "pi", job_id, 300 * MIB)
    Path(f"/proc/{coordinator}/clear_refs").write_text("5")  # its peak is measured from now on
    before_bytes = memory_bytes(coordinator, "VmRSS")
    agent = fleet.agent("pi", wait=False).process.pid
    assert fleet.until("big", "completed")["artifact_id"] == artifact_id
    assert sha256_of(stored_at(fleet, artifact_id)) == artifact_id
    assert memory_bytes(agent, "VmHWM") < 110 * MIB, "its own modules count as well"
    assert memory_bytes(coordinator, "VmHWM") - before_bytes < 64 * MIB


@pytest.mark.parametrize("victim", ["agent", "coordinator"])
def test_a_killed_side_goes_on_where_the_part_file_stands(
    fleet: Any, wait_for: Any, victim: str
) -> None:
    """SIGKILL in mid-upload: the upload resumes (S5) and the artifact is whole."""
    fleet.plan(GATED)
    coordinator = fleet.coordinator(window_bytes=131072)
    job_id = fleet.until("big", "pending")["job_id"]
    artifact_id = lay_in_spool(fleet, "pi", job_id, 96 * MIB)
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
    stored = stored_at(fleet, artifact_id)
    assert sha256_of(stored) == artifact_id
    assert stored.stat().st_ino == inode, "it started over in a new file"
