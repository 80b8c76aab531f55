"""Files: bundles, unpacking what may be hostile, the spool."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.spool.bundle import make_bundle
from agent.spool.spool import MOST_REFUSED, REFUSED_KEPT_S, Spool
from broker.errors import StorageError
from broker.protocol.messages import Failed, Finished
from broker.system.files import RealDisk

CHUNK = 1024


def fill(folder: Path) -> Path:
    """Some files, as a trainer leaves them."""
    (folder / "deep").mkdir(parents=True)
    (folder / "model.json").write_text('{"a": 1}')
    (folder / "deep" / "weights.bin").write_bytes(bytes(range(256)) * 100)
    (folder / "empty").write_bytes(b"")
    return folder


def test_the_same_files_give_the_same_bundle(tmp_path: Path) -> None:
    """Whatever their times, modes and order; other bytes or names give another."""
    one, two = fill(tmp_path / "one"), tmp_path / "two"
    two.mkdir()
    (two / "empty").write_bytes(b"")
    (two / "deep").mkdir()
    for name in ("deep/weights.bin", "model.json"):
        (two / name).write_bytes((one / name).read_bytes())
        os.utime(two / name, (1, 1))
        (two / name).chmod(0o600)
    first = make_bundle(one, tmp_path / "1.tar.zst")
    assert make_bundle(two, tmp_path / "2.tar.zst") == first
    assert hashlib.sha256((tmp_path / "1.tar.zst").read_bytes()).hexdigest() == first.artifact_id
    assert (tmp_path / "1.tar.zst").stat().st_size == first.size_bytes
    (two / "model.json").write_text('{"a": 2}')
    assert make_bundle(two, tmp_path / "3.tar.zst") != first


def test_what_is_no_file_is_not_bundled(tmp_path: Path) -> None:
    """A link could lead anywhere; an empty folder is no result."""
    folder = fill(tmp_path / "f")
    (folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(StorageError, match="no regular file"):
        make_bundle(folder, tmp_path / "b")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(StorageError, match="wrote nothing"):
        make_bundle(tmp_path / "nothing", tmp_path / "b")


LIMITED = """
import resource, sys
from pathlib import Path
from agent.spool.bundle import make_bundle
limit_bytes = int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
try:
    print(make_bundle(Path(sys.argv[1]), Path(sys.argv[2])))
except OSError as error:
    print("OSError", error.errno)
"""


@pytest.mark.system
@pytest.mark.skipif(os.name != "posix", reason="there are no such limits")
@pytest.mark.parametrize(
    ("size_bytes", "limit_bytes"),
    [(3_000_000, 1_000_000), (3_000_000, 2_990_000), (100_000, 60_000), (100_000, 0)],
    ids=["in the middle", "at the end", "of one write", "of nothing"],
)
def test_a_bundle_that_the_disk_does_not_take_whole_is_none(
    tmp_path: Path, size_bytes: int, limit_bytes: int
) -> None:
    """What the disk said is what the caller is told, wherever in the bundle it said so."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "weights").write_bytes(random.Random(1).randbytes(size_bytes))
    bundle = tmp_path / "bundle"
    words = [sys.executable, "-c", LIMITED, tmp_path / "out", bundle, str(limit_bytes)]
    said = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert said.stdout == f"OSError {errno.EFBIG}\n", said.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "a part would fill the disk"


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
@pytest.mark.skipif(os.name != "posix", reason="there are no such limits")
def test_a_file_that_the_disk_does_not_take_whole_is_what_it_was(tmp_path: Path) -> None:
    """Each is the old one, or none: nobody reads half of one."""
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
    again.clear_work()
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
    fill(spool.work("1b" * 32, 1) / "out")
    artifact_id, size_bytes = spool.make_bundle("1b" * 32, 1)
    data = spool.read(artifact_id, 0, size_bytes)
    about = {"id": "r", "session": "s", "instance": "i", "job_id": "1b" * 32, "attempt": 1}
    finished = Finished(**about, artifact_id=artifact_id, size_bytes=size_bytes)
    spool.keep(finished, data)
    if left is None:
        spool.bundle_path(artifact_id).unlink()
    else:
        spool.bundle_path(artifact_id).write_bytes(left)
    again = Spool(tmp_path)
    assert again.load() == [finished]
    assert again.read(artifact_id, 0, size_bytes) == data


def test_the_spool_outlives_its_process(tmp_path: Path) -> None:
    """Reports and bundles are there again; what belongs to none is cleared away."""
    spool = Spool(tmp_path)
    fill(spool.work("1b" * 32, 1) / "out")
    artifact_id, size_bytes = spool.make_bundle("1b" * 32, 1)
    about = {"id": "r", "session": "s", "instance": "i", "job_id": "1b" * 32, "attempt": 1}
    finished = Finished(**about, artifact_id=artifact_id, size_bytes=size_bytes)
    failed = Failed(**(about | {"job_id": "2c" * 32}), error="e")
    spool.keep(finished)
    spool.keep(failed)
    spool.drop_work("1b" * 32, 1)
    assert not spool.work("1b" * 32, 1).exists()
    (tmp_path / "spool" / f"{'0' * 64}.tar.zst").write_bytes(b"orphan")
    (tmp_path / "spool" / "junk.json").write_bytes(b"{")
    again = Spool(tmp_path)
    assert again.load() == [finished, failed]
    assert not (tmp_path / "spool" / f"{'0' * 64}.tar.zst").exists()
    assert again.is_whole(artifact_id)
    assert again.read(artifact_id, 0, 4) == b"\x28\xb5\x2f\xfd"
    again.clear("1b" * 32, 1, artifact_id)
    again.clear("2c" * 32, 1)
    assert Spool(tmp_path).load() == []
    assert not again.bundle_path(artifact_id).exists()


class _Unreadable(RealDisk):
    """A disk that does not give back a report, for a while."""

    def open(self, path: Path, mode: str) -> Any:
        if path.suffix == ".json" and mode == "rb":
            raise OSError(5, "Input/output error")
        return super().open(path, mode)


def test_a_report_that_cannot_be_read_now_costs_no_result(tmp_path: Path) -> None:
    """It is there at the next start, and so is its bundle."""
    spool = Spool(tmp_path)
    fill(spool.work("1b" * 32, 1) / "out")
    artifact_id, size_bytes = spool.make_bundle("1b" * 32, 1)
    about = {"id": "r", "session": "s", "instance": "i", "job_id": "1b" * 32, "attempt": 1}
    finished = Finished(**about, artifact_id=artifact_id, size_bytes=size_bytes)
    spool.keep(finished)
    assert Spool(tmp_path, _Unreadable()).load() == []
    again = Spool(tmp_path)
    assert again.load() == [finished]
    assert again.is_whole(artifact_id)
