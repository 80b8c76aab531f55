"""A folder as a dataset: which files it has, in which packs, and what is refused."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from broker.errors import BadStream, ConfigError
from broker.programs.datasets import Layout, read_layout, write_layout
from coordinator.client import dataset_tree
from coordinator.client.dataset_tree import PackReader, Planned, files_of, plan

SMALL = {"a": b"1" * 60, "b/c": b"2" * 60, "b/d": b"3" * 60, "z": b"4" * 60}


@pytest.fixture(autouse=True)
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_tree, "PACK_BYTES", 100)


def made(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def planned(folder: Path, known: Layout | None = None) -> Planned:
    return plan(files_of(folder), known, lambda _: None)


def packed(found: Planned) -> list[list[str]]:
    """The paths of the files in each new pack."""
    return [[one.path for one in files] for files in found.packs.values()]


def content(found: Planned, earlier: Mapping[str, bytes] | None = None) -> dict[str, bytes]:
    """What a host makes of the layout, by the packs and those of earlier versions."""
    packs = dict(earlier or {})
    for digest, files in found.packs.items():
        with PackReader(files) as reader:
            packs[digest] = reader.read(0, sum(one.size_bytes for one in files))
        assert hashlib.sha256(packs[digest]).hexdigest() == digest
    layout = read_layout(write_layout(found.layout))
    return {
        one.path: packs[layout.packs[one.pack].digest][one.offset : one.offset + one.size_bytes]
        if one.size_bytes
        else b""
        for one in layout.files
    }


def test_files_are_packed_in_their_order_until_a_pack_is_large_enough(tmp_path: Path) -> None:
    found = planned(made(tmp_path, SMALL))
    assert packed(found) == [["a", "b/c"], ["b/d", "z"]]
    assert content(found) == SMALL
    assert sum(one.size_bytes for files in found.packs.values() for one in files) == 240


def test_a_large_file_is_a_pack_by_itself(tmp_path: Path) -> None:
    files = SMALL | {"aa": b"x" * 100}
    found = planned(made(tmp_path, files))
    assert packed(found) == [["aa"], ["a", "b/c"], ["b/d", "z"]]
    assert content(found) == files


def test_a_large_dataset_has_larger_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_tree, "PACK_BYTES", 150)
    monkeypatch.setattr(dataset_tree, "SMALL_PACK_BYTES", 60)
    files = made(tmp_path, SMALL)
    assert packed(planned(files)) == [["a"], ["b/c"], ["b/d"], ["z"]]
    monkeypatch.setattr(dataset_tree, "MOST_NEW", 3)
    assert packed(planned(files)) == [["a", "b/c"], ["b/d", "z"]]
    monkeypatch.setattr(dataset_tree, "MOST_NEW", 1)
    assert packed(planned(files)) == [["a", "b/c", "b/d"], ["z"]]


def test_what_is_there_twice_is_packed_once_and_an_empty_file_never(tmp_path: Path) -> None:
    files = SMALL | {"b/a-again": SMALL["a"], "empty": b"", "large": b"x" * 200, "la": b"x" * 200}
    found = planned(made(tmp_path, files))
    assert sorted(path for paths in packed(found) for path in paths) == [
        "a",
        "b/c",
        "b/d",
        "la",
        "z",
    ]
    assert content(found) == files


def test_the_digest_is_that_of_the_listing(tmp_path: Path) -> None:
    """`sha256sum` over the sorted tree gives the same, however it is packed."""
    lines = "".join(
        f"{hashlib.sha256(data).hexdigest()} {len(data)} {path}\n" for path, data in SMALL.items()
    )
    digest = hashlib.sha256(lines.encode()).hexdigest()
    assert planned(made(tmp_path, SMALL)).layout.digest() == digest


def test_a_later_version_packs_what_is_new_and_refers_to_the_earlier_packs(tmp_path: Path) -> None:
    first = planned(made(tmp_path / "1", SMALL))
    packs = {}
    for digest, files in first.packs.items():
        with PackReader(files) as reader:
            packs[digest] = reader.read(0, 120)
    later = {"a": b"changed", "b/d": SMALL["b/d"], "moved": SMALL["z"]}
    found = planned(made(tmp_path / "2", later), first.layout)
    assert packed(found) == [["a"]]
    assert content(found, packs) == later
    assert len(found.layout.packs) == 2, "of a pack that no file is in nothing is told"
    same = planned(tmp_path / "1", first.layout)
    assert (same.packs, same.layout) == ({}, first.layout)


def test_two_packs_of_the_same_bytes_are_one(tmp_path: Path) -> None:
    """Files that are cut otherwise may be the same one after the other."""
    first = planned(made(tmp_path / "1", {"a": b"12" * 40, "b": b"34" * 40}))
    cut = {"a": b"12" * 40, "b": b"34" * 40, "c": b"12" * 40 + b"3", "d": (b"34" * 40)[1:]}
    found = planned(made(tmp_path / "2", cut), first.layout)
    with PackReader(next(iter(first.packs.values()))) as reader:
        earlier = {first.layout.packs[0].digest: reader.read(0, 160)}
    assert content(found, earlier) == cut


def test_a_slice_of_a_pack_goes_over_files(tmp_path: Path) -> None:
    files = files_of(made(tmp_path, SMALL | {"empty": b""}))
    whole = b"".join(one.at.read_bytes() for one in files)
    with PackReader(files) as reader:
        for offset in range(0, len(whole), 7):
            for length in (1, 60, 130):
                assert (
                    reader.read(offset, min(length, len(whole) - offset))
                    == (whole[offset : offset + length])
                )


def test_a_file_that_shrinks_or_goes_while_it_is_sent_is_named(tmp_path: Path) -> None:
    files = files_of(made(tmp_path, SMALL))
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "z").unlink()
    with PackReader(files) as reader:
        with pytest.raises(BadStream, match=r"\ba: has changed while it was sent; push again"):
            reader.read(0, 60)
        with pytest.raises(BadStream, match=r"\bz: cannot be read: .*; push again"):
            reader.read(180, 60)


def test_a_file_that_changes_while_it_is_hashed_is_named(tmp_path: Path) -> None:
    files = files_of(made(tmp_path, SMALL))
    (tmp_path / "a").write_bytes(b"1")
    with pytest.raises(ConfigError, match=r"\ba: changes while it is read"):
        plan(files, None, lambda _: None)
    (tmp_path / "a").unlink()
    with pytest.raises(ConfigError, match=r"\ba: cannot be read: .*; see its rights"):
        plan(files, None, lambda _: None)


@pytest.mark.posix
def test_what_is_no_plain_file_is_refused_by_its_name(tmp_path: Path) -> None:
    made(tmp_path, SMALL)
    for name, make in {
        "link": lambda at: at.symlink_to("a"),
        "linked-folder": lambda at: at.symlink_to("b"),
        "pipe": os.mkfifo,
    }.items():
        make(tmp_path / name)
        with pytest.raises(ConfigError, match=rf"/{name}: is .*leave it out"):
            files_of(tmp_path)
        (tmp_path / name).unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        with pytest.raises(ConfigError, match="/socket: is no regular file"):
            files_of(tmp_path)


@pytest.mark.posix
@pytest.mark.parametrize("other", ["A", "B/C", "a:b", "con", "x" * 100 + 5 * ("/" + "x" * 100)])
def test_a_path_that_some_system_cannot_store_is_refused_before_it_is_read(
    tmp_path: Path, other: str
) -> None:
    made(tmp_path, {"a": b"1", "b/c": b"2", other: b"3"})
    with pytest.raises(ConfigError, match=r"rename|some systems|too long"):
        files_of(tmp_path)


@pytest.mark.posix
def test_all_names_that_some_system_cannot_store_are_told_with_the_cause(tmp_path: Path) -> None:
    wrong = {
        "a\n\x1b\ab": "/a\\n\\x1b\\x07b'",
        "a:b": "':'",
        "b/con": "device",
        "c.": "'.'",
        "d\u200b": "seen",
        "e" * 201: "200",
    }
    made(tmp_path, dict.fromkeys(("fine", *wrong), b"1"))
    with pytest.raises(ConfigError) as refusal:
        files_of(tmp_path)
    told = refusal.value.faults
    assert [cause in one for cause, one in zip(wrong.values(), told, strict=True)] == [True] * 6
    made(tmp_path / "many", {f"{number}?": b"1" for number in range(30)})
    with pytest.raises(ConfigError) as refusal:
        files_of(tmp_path / "many")
    assert (len(refusal.value.faults), refusal.value.faults[-1]) == (21, "and 10 more")


def test_an_empty_folder_is_refused_at_the_top_and_below(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is empty; put a file into it, or remove it"):
        files_of(tmp_path)
    made(tmp_path, SMALL)
    (tmp_path / "b" / "hollow").mkdir()
    with pytest.raises(ConfigError, match="hollow: is empty"):
        files_of(tmp_path)
    with pytest.raises(ConfigError, match="is no folder"):
        files_of(tmp_path / "a")
