"""Files: bundles, unpacking what may be hostile, the store, the spool."""

from __future__ import annotations

import errno
import hashlib
import io
import json
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
from broker.stream.ranges import RangeSet
from broker.system.archive import unpack
from broker.system.bundle_contents import Limits, StoredNames, System
from broker.system.files import RealDisk
from coordinator.store.partfile import SYNC_EVERY_BYTES
from coordinator.store.store import Store

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
from coordinator.cli.init import operator_key_command
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


CONTENT = bytes(range(256)) * 40  # ten chunks
IDENTITY = hashlib.sha256(CONTENT).hexdigest()


def write_all(store: Store, content: bytes = CONTENT, identity: str = IDENTITY) -> Any:
    """Open a part and write what is missing of it."""
    part, have = store.open_part(identity, len(content), CHUNK)
    for index in range(len(content) // CHUNK):
        if index not in have:
            part.write(index, content[index * CHUNK : (index + 1) * CHUNK])
    return part


def test_an_artifact_is_stored_under_its_hash(tmp_path: Path) -> None:
    """And found again by a new process."""
    store = Store(tmp_path)
    info = store.finish(write_all(store), "gbt", "oracle")
    assert info.path == tmp_path / "models" / "gbt_oracle" / IDENTITY / "bundle.tar.zst"
    assert info.path.read_bytes() == CONTENT
    assert not list((tmp_path / "incoming").iterdir())
    again = Store(tmp_path)
    assert again.has(IDENTITY)
    assert again.sizes() == {IDENTITY: len(CONTENT)}
    assert again.path_of(IDENTITY) == info.path


def test_what_hashes_to_something_else_is_deleted(tmp_path: Path) -> None:
    """And is not in the store."""
    store = Store(tmp_path)
    part = write_all(store, CONTENT[:-1] + b"!")
    with pytest.raises(BadStream):
        store.finish(part, "gbt", "oracle")
    assert not store.has(IDENTITY)
    assert not list((tmp_path / "incoming").iterdir())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_part_goes_on_where_it_surely_stands(tmp_path: Path) -> None:
    """What was made durable is there after a crash; what was not is asked for again."""
    store = Store(tmp_path)
    part, have = store.open_part(IDENTITY, len(CONTENT), CHUNK)
    assert not have
    part.write(0, CONTENT[:CHUNK])
    part.sync()
    part.write(1, CONTENT[CHUNK : 2 * CHUNK])  # and now the power fails
    crashed = Store(tmp_path)
    _, have = crashed.open_part(IDENTITY, len(CONTENT), CHUNK)
    assert have == RangeSet([(0, 1)])
    assert crashed.finish(write_all(crashed), "gbt", "oracle").size_bytes == len(CONTENT)


@pytest.mark.parametrize("listed", [
    b"", b"{", b"[]", b'{"size_bytes": 1, "chunk_bytes": 1, "have": []}',
    json.dumps({"size_bytes": len(CONTENT), "chunk_bytes": CHUNK, "have": [[0, 99]]}).encode(),
    json.dumps({"size_bytes": len(CONTENT), "chunk_bytes": CHUNK, "have": [[0, 10]]}).encode(),
])  # fmt: skip
def test_a_list_that_cannot_be_true_is_not_believed(tmp_path: Path, listed: bytes) -> None:
    """Another size, chunks beyond the end, more than the part file holds: start over."""
    store = Store(tmp_path)
    (tmp_path / "incoming" / f"{IDENTITY}.part").write_bytes(b"x" * 100)
    (tmp_path / "incoming" / f"{IDENTITY}.json").write_bytes(listed)
    part, have = store.open_part(IDENTITY, len(CONTENT), CHUNK)
    part.close()
    assert not have


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_list_of_a_large_part_follows_by_itself(tmp_path: Path) -> None:
    """It is asked for every sixteen mebibytes, and claims no more than was there then."""
    store = Store(tmp_path)
    part, _ = store.open_part("ab" * 32, 4 * SYNC_EVERY_BYTES, 1024 * 1024)
    asked = []
    for index in range(20):
        part.write(index, bytes(1024 * 1024))
        if part.wants_sync():
            asked.append(index)
    part.sync()
    assert asked == [15]
    _, have = Store(tmp_path).open_part("ab" * 32, 4 * SYNC_EVERY_BYTES, 1024 * 1024)
    assert have == RangeSet([(0, 16)])


def test_the_hash_is_right_in_whatever_order_chunks_come(tmp_path: Path) -> None:
    """It is taken along; what came before its turn, or by an earlier process, is read again."""
    store = Store(tmp_path)
    part, _ = store.open_part(IDENTITY, len(CONTENT), CHUNK)
    part.write(2, CONTENT[2 * CHUNK : 4 * CHUNK])  # two at once
    part.close()
    part, have = store.open_part(IDENTITY, len(CONTENT), CHUNK)
    assert have == RangeSet([(2, 4)])
    for index in (1, 0, *range(9, 3, -1)):
        part.write(index, CONTENT[index * CHUNK : (index + 1) * CHUNK])
    assert store.finish(part, "gbt", "oracle").path.read_bytes() == CONTENT


@pytest.mark.parametrize("other", [256, 512, 3 * CHUNK, len(CONTENT)])
def test_a_part_goes_on_though_its_sender_cuts_it_otherwise(tmp_path: Path, other: int) -> None:
    """What is there of whole chunks of the new size need not come again."""
    store = Store(tmp_path)
    part, _ = store.open_part(IDENTITY, len(CONTENT), CHUNK)
    for index in (0, 1, 2, 4, 5, 6, 7, 8, 9):
        part.write(index, CONTENT[index * CHUNK : (index + 1) * CHUNK])
    part.close()
    part, have = store.open_part(IDENTITY, len(CONTENT), other)
    gone = range(3 * CHUNK, 4 * CHUNK)
    for index in range(-(-len(CONTENT) // other)):
        span = range(index * other, min(len(CONTENT), (index + 1) * other))
        whole = span.stop <= gone.start or span.start >= gone.stop
        assert (index in have) == whole, span
        if not whole:
            part.write(index, CONTENT[span.start : span.stop])
    assert store.finish(part, "gbt", "oracle").path.read_bytes() == CONTENT


class _Forgetful(RealDisk):
    """A disk that fails to make something durable, once; later it says that all is well."""

    def __init__(self) -> None:
        self.failures = 1

    def sync(self, file: Any) -> None:
        if file.name.endswith(".part") and self.failures:
            self.failures -= 1
            raise OSError(5, "Input/output error")
        super().sync(file)


def test_a_disk_that_failed_once_is_not_believed_later(tmp_path: Path) -> None:
    """What it was given may be gone, whatever it says afterwards: the part is refused."""
    store = Store(tmp_path, _Forgetful())
    part = write_all(store)
    for _ in range(2):
        with pytest.raises(StorageError, match="error"):
            part.sync() if part._failure is None else store.finish(part, "gbt", "oracle")
    with pytest.raises(StorageError):
        part.write(0, CONTENT[:CHUNK])
    part.close()
    assert not store.has(IDENTITY)


@pytest.mark.parametrize(
    "name", ["..", "../x", "a/b", "", "x" * 99, ".hidden", "a\0b", "aux.x", "con", "a:b", "a."]
)
def test_no_name_from_the_wire_is_a_path(tmp_path: Path, name: str) -> None:
    """Neither as an id, nor as a model or a mode."""
    store = Store(tmp_path)
    with pytest.raises(BadStream):
        store.open_part(name, 10, CHUNK)
    for model, mode in ((name, "oracle"), ("gbt", name)):
        part = write_all(store)
        with pytest.raises(BadStream):
            store.finish(part, model, mode)
        part.close()


def test_an_artifact_that_does_not_fit_is_told_before_it_comes(tmp_path: Path) -> None:
    """With the figures and the remedy."""
    with pytest.raises(StorageError, match="make room"):
        Store(tmp_path).open_part(IDENTITY, 1 << 50, CHUNK)


def test_the_index_has_each_row_once_and_no_torn_one(tmp_path: Path) -> None:
    """Appended again after a restart it is not repeated; a torn last line is cut off."""
    row = {"job_id": "j", "attempt": 1, "artifact_id": "a"}
    Store(tmp_path).index.append(row)
    index = tmp_path / "models" / "index.jsonl"
    with index.open("ab") as file:
        file.write(b'{"job_id": "to')
    store = Store(tmp_path)
    store.index.append(row)
    store.index.append(row | {"attempt": 2})
    assert [json.loads(line)["attempt"] for line in index.read_text().splitlines()] == [1, 2]


TORN = """
import resource, sys
from pathlib import Path
from broker.errors import StorageError
from coordinator.store.store import Store
store, (soft, hard) = Store(Path(sys.argv[1])), resource.getrlimit(resource.RLIMIT_FSIZE)
for attempt, limit_bytes in ((1, soft), (2, 300), (3, soft)):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        store.index.append({"job_id": "j" * 100, "attempt": attempt, "artifact_id": "a" * 100})
    except StorageError:
        print("refused", attempt)
"""


@pytest.mark.system
@pytest.mark.skipif(os.name != "posix", reason="there are no such limits")
def test_a_row_that_the_disk_does_not_take_whole_spoils_no_other(tmp_path: Path) -> None:
    """Once there is room again the next one has a line of its own."""
    words = [sys.executable, "-c", TORN, tmp_path]
    said = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert said.stdout == "refused 2\n", said.stderr
    lines = (tmp_path / "models" / "index.jsonl").read_text().splitlines()
    assert [json.loads(line)["attempt"] for line in lines] == [1, 3]


def test_dead_parts_are_collected(tmp_path: Path) -> None:
    """Those that nobody has written to for long; with their lists."""
    store = Store(tmp_path)
    part, _ = store.open_part(IDENTITY, len(CONTENT), CHUNK)
    part.write(0, CONTENT[:CHUNK])
    part.close()
    modified_s = part.path.stat().st_mtime
    assert store.collect_parts(100, modified_s + 99) == 0
    assert store.collect_parts(100, modified_s + 101) == 1
    assert not list((tmp_path / "incoming").iterdir())


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


def test_what_a_killed_process_was_making_goes_with_the_next_start(tmp_path: Path) -> None:
    """`fleet fsck` would find it for ever; a list of chunks that is whole stays."""
    Store(tmp_path)
    half = [tmp_path / "incoming" / f"{IDENTITY}.json.making", tmp_path / "models" / "index.making"]
    whole = tmp_path / "incoming" / f"{IDENTITY}.json"
    for path in (*half, whole):
        path.write_bytes(b"{")
    Store(tmp_path)
    assert [path for path in (*half, whole) if path.exists()] == [whole]


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
