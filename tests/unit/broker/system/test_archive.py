"""What a bundle may hold, and how one that may be hostile is unpacked."""

from __future__ import annotations

import io
import random
import tarfile
from pathlib import Path
from urllib.parse import unquote

import pytest
import zstandard

from broker.errors import BadStream, StorageError
from broker.file_names import is_plain
from broker.system.archive import Limits, unpack
from broker.system.bundle import make_bundle


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    made.size = 3 if kind == tarfile.REGTYPE else 0
    return made


def archive(path: Path, *entries: tarfile.TarInfo) -> Path:
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
    "loss%3A.png", "model.bin", "up/A", "Up/a", "\u00e9", "e\u0301",
]  # fmt: skip


@pytest.mark.posix  # Windows cannot make what is bundled
@pytest.mark.parametrize("windows", [False, True])
def test_what_a_system_cannot_store_is_escaped_there(tmp_path: Path, *, windows: bool) -> None:
    for name in AWKWARD:
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text(name)
    make_bundle(tmp_path / "out", tmp_path / "bundle")
    files = unpack(tmp_path / "bundle", tmp_path / "got", windows=windows)
    stored = {path.relative_to(tmp_path / "got").as_posix(): path.read_text() for path in files}
    assert sorted(stored.values()) == sorted(AWKWARD)
    if not windows:
        assert all(name == trainers for name, trainers in stored.items())
        return
    assert all(unquote(name) == trainers for name, trainers in stored.items())
    assert all(is_plain(part) for name in stored for part in name.split("/"))
    assert stored["100%"] == "100%"
    assert stored["deep%20/epoch=3%3Aloss=0.1.ckpt"] == "deep /epoch=3:loss=0.1.ckpt"


def test_names_that_a_disk_takes_for_one_are_both_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_file = Path.open

    def folded(path: Path, mode: str = "r", **more: object) -> object:
        within = path.name.lower() if path.parent.name.startswith(".got") else path.name
        return open_file(path.with_name(within), mode, **more)  # type: ignore[call-overload]

    bundle = archive(tmp_path / "b", entry("Model.bin"), entry("model.bin"))
    monkeypatch.setattr(Path, "open", folded)
    first, second = unpack(bundle, tmp_path / "got")
    assert first.name == "Model.bin"
    assert unquote(second.name) == "model.bin" != second.name


@pytest.mark.posix  # likewise
@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([f"f{number}" for number in range(10_001)], "a bundle holds at most 10,000 files"),
        (["/".join("a" * 17)], "is 17 levels deep; a bundle holds at most 16"),
        (["a\nb"], r"'a\\nb' is no plain relative name"),
        (["x" * 101], "is too long"),
    ],
    ids=["files", "levels", "line end", "length"],
)
def test_what_could_not_be_unpacked_is_not_bundled(
    tmp_path: Path, names: list[str], words: str
) -> None:
    for name in names:
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).touch()
    with pytest.raises(StorageError, match=words):
        make_bundle(tmp_path / "out", tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_bombs_and_damage_are_refused(tmp_path: Path) -> None:
    many = archive(tmp_path / "many", *(entry(f"f{number}") for number in range(20)))
    with pytest.raises(BadStream, match="at most 10 files"):
        unpack(many, tmp_path / "o1", Limits(entries=10))
    bomb = tmp_path / "bomb"
    bomb.write_bytes(zstandard.ZstdCompressor().compress(bytes(200 * 1024 * 1024)))
    assert bomb.stat().st_size < 100_000
    with pytest.raises(BadStream):
        unpack(bomb, tmp_path / "o2", Limits(entries=1, total_bytes=1024))
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "weights").write_bytes(random.Random(1).randbytes(1000))
    make_bundle(tmp_path / "f", tmp_path / "whole")
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
