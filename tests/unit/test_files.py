"""Files: bundles, unpacking what may be hostile, the spool."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import random
import subprocess
import sys
import tarfile
import unicodedata
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from agent.spool.bundle import make_bundle
from agent.spool.spool import MOST_REFUSED, REFUSED_KEPT_S, Spool
from broker.errors import BadStream, StorageError
from broker.file_names import is_plain
from broker.protocol.messages import Failed, Finished
from broker.system.archive import unpack
from broker.system.bundle_contents import Limits, StoredNames, System
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


def test_a_bundle_unpacks_to_what_was_bundled(tmp_path: Path) -> None:
    """Names and bytes."""
    source = fill(tmp_path / "source")
    make_bundle(source, tmp_path / "b.tar.zst")
    files = unpack(tmp_path / "b.tar.zst", tmp_path / "out")
    assert sorted(path.relative_to(tmp_path / "out").as_posix() for path in files) == [
        "deep/weights.bin", "empty", "model.json"
    ]  # fmt: skip
    for path in files:
        original = source / path.relative_to(tmp_path / "out")
        assert path.read_bytes() == original.read_bytes()


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
from agent.process.orphans import record
from agent.trainer.data.schema import TensorsIndex, write_json
from broker.deploy.write import write
from broker.system.machine import system_clock
from coordinator.cli.operator_key import operator_key_command
folder = Path(sys.argv[1])
index = TensorsIndex(rows=1, groups=(), episodes=())
key = ["-o", str(folder / "operator.key")]
resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))
for work in (
    lambda: write(folder, {"acl": "topic read fleet/# " * 9}, force=True),
    lambda: write_json(folder / "index.json", index),
    lambda: record(folder, 1),
    lambda: Contact(folder, None, system_clock()),
    lambda: operator_key_command.main(key, standalone_mode=False),
):
    with contextlib.suppress(OSError):
        work()
"""


@pytest.mark.system
@pytest.mark.skipif(os.name != "posix", reason="there are no such limits")
def test_a_file_that_the_disk_does_not_take_whole_is_what_it_was(tmp_path: Path) -> None:
    """Each is the old one, or none: nobody reads half of one."""
    before = dict.fromkeys(("acl", "index.json", "process.json"), "before")
    for name, text in before.items():
        (tmp_path / name).write_text(text)
    words = [sys.executable, "-c", NO_ROOM, tmp_path]
    subprocess.run(words, check=True, timeout=60)
    left = {one.name: one for one in tmp_path.iterdir() if one.suffix not in {".making", ".part"}}
    assert {name: path.read_text() for name, path in left.items()} == before


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    """An entry of an archive."""
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    made.size = 3 if kind == tarfile.REGTYPE else 0
    return made


def archive(path: Path, *entries: tarfile.TarInfo) -> Path:
    """An archive of three-byte files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for one in entries:
            tar.addfile(one, io.BytesIO(b"abc"))
    path.write_bytes(zstandard.ZstdCompressor().compress(buffer.getvalue()))
    return path


@pytest.mark.parametrize(
    "entries",
    [
        [entry("/etc/passwd")], [entry("../x")], [entry("a/../../x")], [entry("a//b")],
        [entry("./a")], [entry("a/")], [entry("a\nb")], [entry("a\x9bb")], [entry("a\udcffb")],
        [entry("x" * 201)], [entry("/".join("a" * 17))],
        [entry("l", tarfile.SYMTYPE, "/etc/passwd")], [entry("l", tarfile.LNKTYPE, "a")],
        [entry("d", tarfile.CHRTYPE)], [entry("f", tarfile.FIFOTYPE)],
        [entry("d", tarfile.DIRTYPE)],
        [entry("same"), entry("same")], [entry("a"), entry("a/b")], [entry("a/b"), entry("a")],
        [entry("good"), entry("../bad")],
    ],
)  # fmt: skip
def test_a_hostile_archive_is_refused_and_leaves_nothing(
    tmp_path: Path, entries: list[tarfile.TarInfo]
) -> None:
    """Not even the good entries before the bad one."""
    bundle = archive(tmp_path / "b.tar.zst", *entries)
    with pytest.raises(BadStream):
        unpack(bundle, tmp_path / "out" / "x")
    assert not list((tmp_path / "out").iterdir())
    assert [path.name for path in tmp_path.iterdir()] in (
        ["b.tar.zst", "out"],
        ["out", "b.tar.zst"],
    )


AWKWARD = [
    "100%", "AUX", "Model.bin", "a.", "a:b", "a\\b", "con.txt/x", "deep /epoch=3:loss=0.1.ckpt",
    "loss%3A.png", "model.bin", "mOdel.bin", "up/A", "Up/a", "\u00e9", "e\u0301", "Straße",
    "STRASSE",
]  # fmt: skip
SYSTEMS = [System(), System(windows=True), System(folds=True), System(windows=True, folds=True)]


def folded(name: str) -> str:
    """What names have in common that differ by case or composition alone."""
    return unicodedata.normalize("NFC", name.casefold())


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_a_system_cannot_store_is_escaped_there(tmp_path: Path, system: System) -> None:
    """All of it is stored, by names of which the trainer's can be told; no more is changed."""
    for name in AWKWARD:
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text(name)
    make_bundle(tmp_path / "out", tmp_path / "bundle")
    files = unpack(tmp_path / "bundle", tmp_path / "got", system=system)
    stored = {path.relative_to(tmp_path / "got").as_posix(): path.read_text() for path in files}
    assert sorted(stored.values()) == sorted(AWKWARD)
    if system == System():
        assert all(name == trainers for name, trainers in stored.items())
        return
    assert all(unquote(name) == trainers for name, trainers in stored.items())
    assert stored["100%"] == "100%"
    if system.windows:
        assert all(is_plain(part) for name in stored for part in name.split("/"))
        assert stored["deep%20/epoch=3%3Aloss=0.1.ckpt"] == "deep /epoch=3:loss=0.1.ckpt"
    if system.folds:
        assert len(set(map(folded, stored))) == len(stored)
        assert {"Model.bin", "%6DOdel.bin", "%6D%6Fdel.bin"} <= stored.keys()


@given(st.lists(st.text(st.sampled_from("aAbB%41:. é\u0301"), min_size=1, max_size=4), unique=True))
def test_names_are_told_again_whatever_they_are(names: list[str]) -> None:
    """No two are one, and each is the trainer's when it is decoded."""
    for system in SYSTEMS[1:]:
        stored = StoredNames(system)
        given_names = [stored.of(name) for name in names]
        assert [unquote(name) for name in given_names] == names
        keys = map(folded, given_names) if system.folds else given_names
        assert len(set(keys)) == len(names)


def test_this_folder_stores_what_it_stores(tmp_path: Path) -> None:
    """What it can is found out: nothing is changed that need not be."""
    (tmp_path / "out").mkdir()
    for name in ("Model.bin", "model.bin"):
        (tmp_path / "out" / name).write_text(name)
    both = len(list((tmp_path / "out").iterdir())) == 2
    make_bundle(tmp_path / "out", tmp_path / "bundle")
    files = unpack(tmp_path / "bundle", tmp_path / "got")
    assert [path.name for path in files] == (["Model.bin", "model.bin"] if both else ["Model.bin"])


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([f"f{number}" for number in range(10_001)], "a bundle holds at most 10,000 files"),
        (["/".join("a" * 17)], "is 17 levels deep; a bundle holds at most 16"),
        (["a\nb"], r"'a\\nb' is no plain relative name"),
        (["x" * 101], "is too long; a name in a bundle has at most 100 bytes"),
        (["?" * 100], "has more than 255 characters where Windows stores it escaped"),
    ],
    ids=["files", "levels", "line end", "length", "escaped"],
)
def test_what_could_not_be_unpacked_is_not_bundled(
    tmp_path: Path, names: list[str], words: str
) -> None:
    """It is told with the file and the limit."""
    for name in names:
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).touch()
    with pytest.raises(StorageError, match=words):
        make_bundle(tmp_path / "out", tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


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


def test_bombs_and_damage_are_refused(tmp_path: Path) -> None:
    """Too many files, too many bytes, cut off, altered, not an archive at all."""
    many = archive(tmp_path / "many", *(entry(f"f{number}") for number in range(20)))
    with pytest.raises(BadStream, match="at most 10 files"):
        unpack(many, tmp_path / "o1", Limits(entries=10))
    bomb = tmp_path / "bomb"
    bomb.write_bytes(zstandard.ZstdCompressor().compress(bytes(200 * 1024 * 1024)))
    assert bomb.stat().st_size < 100_000
    with pytest.raises(BadStream):
        unpack(bomb, tmp_path / "o2", Limits(entries=1, total_bytes=1024))
    make_bundle(fill(tmp_path / "f"), tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    for number, damaged in enumerate((whole[:-10], whole[:200], b"", b"junk" * 100,
                                      whole[:100] + b"\xff" + whole[101:])):  # fmt: skip
        path = tmp_path / f"damaged{number}"
        path.write_bytes(damaged)
        with pytest.raises(BadStream):
            unpack(path, tmp_path / f"o3{number}")
        assert not (tmp_path / f"o3{number}").exists()
    with pytest.raises(FileExistsError):
        unpack(tmp_path / "whole", tmp_path / "f")


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
    spool.close()
    if left is None:
        spool.bundle_path(artifact_id).unlink()
    else:
        spool.bundle_path(artifact_id).write_bytes(left)
    again = Spool(tmp_path)
    assert again.load() == [finished]
    assert again.read(artifact_id, 0, size_bytes) == data
    again.close()


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
