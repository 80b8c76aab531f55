"""Layouts of datasets: what is written is read again, and what could harm a host is refused."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
import zstandard

from broker.errors import BadStream
from broker.programs import datasets
from broker.programs.datasets import File, Layout, Pack, Paths, read_layout, write_layout

A, B = hashlib.sha256(b"aa").hexdigest(), hashlib.sha256(b"bbb").hexdigest()
EMPTY = hashlib.sha256().hexdigest()
PACK = Pack(hashlib.sha256(b"aabbb").hexdigest(), 5)
GOOD = Layout(
    (PACK,),
    (File("a/x.png", 2, A, 0, 0), File("b.png", 3, B, 0, 2), File("b/empty", 0, EMPTY, 0, 0)),
)


def packed(told: Any) -> bytes:
    return zstandard.compress(json.dumps(told).encode())


def told(files: list[Any], packs: list[Any] | None = None) -> bytes:
    return packed({"version": 1, "packs": [[*PACK]] if packs is None else packs, "files": files})


def test_a_layout_is_read_as_it_was_written() -> None:
    data = write_layout(GOOD)
    assert read_layout(data) == GOOD
    assert write_layout(read_layout(data)) == data
    assert GOOD.size_bytes == 5


def test_a_dataset_is_named_by_its_listing_and_not_by_its_packs() -> None:
    listing = f"{A} 2 a/x.png\n{B} 3 b.png\n{EMPTY} 0 b/empty\n"
    assert GOOD.digest() == hashlib.sha256(listing.encode()).hexdigest()
    apart = Layout((Pack(A, 2), Pack(B, 3)), (
        File("a/x.png", 2, A, 0, 0), File("b.png", 3, B, 1, 0), File("b/empty", 0, EMPTY, 0, 0),
    ))  # fmt: skip
    assert apart.digest() == GOOD.digest()
    assert read_layout(write_layout(apart)) == apart


def test_what_occurs_twice_is_packed_once() -> None:
    both = Layout((Pack(A, 2),), (File("a", 2, A, 0, 0), File("é", 2, A, 0, 0)))
    assert read_layout(write_layout(both)) == both


@pytest.mark.parametrize("files", [
    [],
    [["a", 2, A, 0, 0], ["a", 2, A, 0, 0]],
    [["b", 2, A, 0, 0], ["a", 3, B, 0, 2]],
    [["a", 2, A, 0, 4]],
    [["a", 2, A, 0, -1]],
    [["a", 2, A, 1, 0]],
    [["a", 2, A, -1, 0]],
    [["a", -2, A, 0, 0]],
    [["a", 0, A, 0, 0]],
    [["a", 2, EMPTY, 0, 0]],
    [["a", 2, "../../x", 0, 0]],
    [["a", True, A, 0, 0]],
    [["a", 2, A, 0, 0.0]],
    [["a", 2, A, 0]],
    [[1, 2, A, 0, 0]],
    ["a"],
    [["a", 2, A, 0, 0], ["b", 3, A, 0, 0]],
    [["a", 0, EMPTY, 0, 0]],
    [["a", 2, A, 0, 0], ["b", 0, EMPTY, 0, 1]],
])  # fmt: skip
def test_a_layout_that_contradicts_itself_is_refused(files: list[Any]) -> None:
    with pytest.raises(BadStream):
        read_layout(told(files))


@pytest.mark.parametrize("packs", [
    [], [[PACK.digest, 5], [PACK.digest, 5]], [[PACK.digest, 0]], [[PACK.digest, 1 << 60]],
    [["no", 5]], [[PACK.digest, 5], [A, 2]], [[PACK.digest]], "x",
])  # fmt: skip
def test_packs_that_no_dataset_can_have_are_refused(packs: Any) -> None:
    with pytest.raises(BadStream):
        read_layout(told([["a", 2, A, 0, 0], ["b", 3, B, 0, 2]], packs))


@pytest.mark.parametrize("path", [
    "", "/etc/passwd", "../x", "a/../x", "a//x", "./x", "a/", "C:/x", "a\\x", "a\nb", "a\0",
    "\ud800", "nul", "a/aux.txt", "a.", "a ", "a\u202eb", "/".join("x" * 17), "x" * 201,
    "/".join(["x" * 90] * 6),
])  # fmt: skip
def test_a_path_that_some_system_cannot_store_is_refused(path: str) -> None:
    assert Paths().objection(path)
    with pytest.raises(BadStream):
        read_layout(told([[path, 2, A, 0, 0]]))


@pytest.mark.parametrize("paths", [
    ("a", "a"), ("A", "a"), ("a", "a/b"), ("a/b", "a"), ("A/b", "a"), ("A/x", "a/y"),
    ("caf\u00e9", "cafe\u0301"), ("STRASSE", "stra\u00dfe"), ("a", "A/b"),
])  # fmt: skip
def test_paths_that_are_one_on_some_systems_are_refused(paths: tuple[str, str]) -> None:
    judge = Paths()
    assert not judge.objection(paths[0])
    assert judge.objection(paths[1])


def test_paths_of_every_day_are_taken() -> None:
    judge = Paths()
    for path in ("train/0/é 1.png", "train/0/2.png", "train/1/1.png", ".hidden", "a-b", "a/b"):
        assert not judge.objection(path)


def test_a_layout_that_is_none_is_refused() -> None:
    good = write_layout(GOOD)
    for data in (b"", b"x", good[:20], packed([]), packed({"version": 2}),
                 zstandard.compress(b"{"), zstandard.compress(b"[" * 200_000)):  # fmt: skip
        with pytest.raises(BadStream):
            read_layout(data)


def test_a_layout_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "_MAX_JSON_BYTES", 1000)
    with pytest.raises(BadStream, match="more than is allowed"):
        read_layout(zstandard.compress(b" " * 100_000))


def test_a_dataset_with_too_many_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_layout(GOOD)
    monkeypatch.setattr(datasets, "MAX_FILES", 2)
    with pytest.raises(BadStream, match="at most 2"):
        read_layout(data)
