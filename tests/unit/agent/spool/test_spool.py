"""Files: bundles, unpacking what may be hostile, the spool."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.spool.spool import MOST_REFUSED, REFUSED_KEPT_S, Spool
from broker.protocol.messages import Failed, Finished
from broker.system.files import RealDisk
from tests.harness.stored import fill

ABOUT = {"id": "r", "session": "s", "instance": "i", "job_id": "1b" * 32, "attempt": 1}


def bundled(spool: Spool) -> Finished:
    """The report of a job whose result is bundled."""
    fill(spool.work("1b" * 32, 1) / "out")
    artifact_id, size_bytes = spool.make_bundle("1b" * 32, 1)
    return Finished(**ABOUT, artifact_id=artifact_id, size_bytes=size_bytes)


NO_ROOM = """
import contextlib, resource, sys
from pathlib import Path
from agent.service.status import Contact
from agent.trainer.data.schema import TensorsIndex, write_json
from broker.deploy.site import write
from broker.system.machine import system_clock
from coordinator.cli.init import operator_key_command
folder = Path(sys.argv[1])
index = TensorsIndex(rows=1, groups=(), episodes=())
key = ["-o", str(folder / "operator.key")]
resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))
for work in (
    lambda: write(folder, {"acl": "topic read fleet/# " * 9}, force=True),
    lambda: write_json(folder / "index.json", index),
    lambda: Contact(folder, system_clock(), "pi", None, None),
    lambda: operator_key_command.main(key, standalone_mode=False),
):
    with contextlib.suppress(OSError):
        work()
"""


@pytest.mark.system
@pytest.mark.posix  # there are no such limits
def test_a_file_that_the_disk_does_not_take_whole_is_what_it_was(tmp_path: Path) -> None:
    before = dict.fromkeys(("acl", "index.json"), "before")
    for name, text in before.items():
        (tmp_path / name).write_text(text)
    words = [sys.executable, "-c", NO_ROOM, tmp_path]
    subprocess.run(words, check=True, timeout=60)
    left = {one.name: one for one in tmp_path.iterdir() if one.suffix not in {".making", ".part"}}
    assert {name: path.read_text() for name, path in left.items()} == before


def test_what_is_no_result_is_kept_for_a_while(tmp_path: Path) -> None:
    """The newest few, for a week: neither is a disk filled, nor a training thrown away."""
    spool = Spool(tmp_path)
    for attempt in range(1, MOST_REFUSED + 3):
        fill(spool.work("1b" * 32, attempt) / "out")
        kept = spool.set_aside("1b" * 32, attempt, "it is too deep")
        os.utime(kept, (1e9 + attempt, 1e9 + attempt))
    assert (kept / "out" / "deep" / "weights.bin").stat().st_size == 25_600
    assert (kept / "why.txt").read_text() == "it is too deep\n"
    again = Spool(tmp_path)
    again.take_over(lambda *_: False)
    assert len(list((tmp_path / "refused").iterdir())) == MOST_REFUSED
    again.collect_refused(1e9 + MOST_REFUSED + 2 + REFUSED_KEPT_S)
    assert [path.name for path in (tmp_path / "refused").iterdir()] == [kept.name]
    again.collect_refused(1e9 + MOST_REFUSED + 3 + REFUSED_KEPT_S)
    assert not list((tmp_path / "refused").iterdir())


@pytest.mark.parametrize("left", [None, b"", b"torn"], ids=["gone", "empty", "torn"])
def test_a_small_bundle_survives_a_power_cut_in_its_report(
    tmp_path: Path, left: bytes | None
) -> None:
    """Its own file was not flushed: whatever became of that, it is handed over."""
    spool = Spool(tmp_path)
    finished = bundled(spool)
    artifact_id, size_bytes = finished.artifact_id, finished.size_bytes
    data = spool.read(artifact_id, 0, size_bytes)
    spool.keep(finished, data)
    if left is None:
        spool.bundle_path(artifact_id).unlink()
    else:
        spool.bundle_path(artifact_id).write_bytes(left)
    again = Spool(tmp_path)
    assert again.load() == [finished]
    assert again.read(artifact_id, 0, size_bytes) == data


def test_the_spool_outlives_its_process(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    finished = bundled(spool)
    failed = Failed(**(ABOUT | {"job_id": "2c" * 32}), error="e")
    spool.keep(finished)
    spool.keep(failed)
    spool.drop_work("1b" * 32, 1)
    assert not spool.work("1b" * 32, 1).exists()
    (tmp_path / "spool" / f"{'0' * 64}.tar.zst").write_bytes(b"orphan")
    (tmp_path / "spool" / "junk.json").write_bytes(b"{")
    again = Spool(tmp_path)
    assert again.load() == [finished, failed]
    assert not (tmp_path / "spool" / f"{'0' * 64}.tar.zst").exists()
    assert again.is_whole(finished.artifact_id)
    assert again.read(finished.artifact_id, 0, 4) == b"\x28\xb5\x2f\xfd"
    again.clear("1b" * 32, 1, finished.artifact_id)
    again.clear("2c" * 32, 1)
    assert Spool(tmp_path).load() == []
    assert not again.bundle_path(finished.artifact_id).exists()


class _Unreadable(RealDisk):
    """A disk that does not give back a report, for a while."""

    def open(self, path: Path, mode: str) -> Any:
        if path.suffix == ".json" and mode == "rb":
            raise OSError(5, "Input/output error")
        return super().open(path, mode)


def test_a_report_that_cannot_be_read_now_costs_no_result(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    finished = bundled(spool)
    spool.keep(finished)
    assert Spool(tmp_path, _Unreadable()).load() == []
    again = Spool(tmp_path)
    assert again.load() == [finished]
    assert again.is_whole(finished.artifact_id)
