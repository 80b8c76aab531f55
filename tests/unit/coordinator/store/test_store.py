"""The store: artifacts under their hashes, and what it deletes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.errors import BadStream, StorageError
from coordinator.jobs.plan_entries import CHECKPOINTS
from coordinator.store.store import Store
from tests.harness.disks import FullDisk
from tests.harness.stored import CHUNK, CONTENT, IDENTITY, hex_of, path_in, put, write_all

DAY_S = 86_400.0
DATA = b"weights" * 40
ID = hex_of(DATA)


def test_an_artifact_is_stored_under_its_hash(tmp_path: Path) -> None:
    """And found again by a new process."""
    store = Store(tmp_path)
    path = store.finish(write_all(store), "gbt", "oracle")
    assert path == tmp_path / "models" / "gbt_oracle" / IDENTITY / "bundle.tar.zst"
    assert path.read_bytes() == CONTENT
    assert not list((tmp_path / "incoming").iterdir())
    again = Store(tmp_path)
    assert again.has(IDENTITY)
    assert again.sizes() == {IDENTITY: len(CONTENT)}
    assert again.path_of(IDENTITY) == path


def test_what_hashes_to_something_else_is_deleted(tmp_path: Path) -> None:
    store = Store(tmp_path)
    part = write_all(store, CONTENT[:-1] + b"!")
    with pytest.raises(BadStream):
        store.finish(part, "gbt", "oracle")
    assert not store.has(IDENTITY)
    assert not list((tmp_path / "incoming").iterdir())


@pytest.mark.parametrize(
    "name", ["..", "../x", "a/b", "", "x" * 99, ".hidden", "a\0b", "aux.x", "con", "a:b", "a."]
)
def test_no_name_from_the_wire_is_a_path(tmp_path: Path, name: str) -> None:
    """Neither as an id, nor as a model or a mode."""
    store = Store(tmp_path)
    with pytest.raises(BadStream):
        store.open_part(name, 10, CHUNK)
    for model, mode in ((name, "oracle"), ("gbt", name or "..")):  # a mode may be empty
        part = write_all(store)
        with pytest.raises(BadStream):
            store.finish(part, model, mode)
        part.close()


def test_an_artifact_that_does_not_fit_is_told_before_it_comes(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="make room"):
        Store(tmp_path).open_part(IDENTITY, 1 << 50, CHUNK)


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


def test_the_store_takes_what_hashes_to_its_id(tmp_path: Path) -> None:
    """And finds it again; nothing of it is left on the way in."""
    store = Store(tmp_path)
    with pytest.raises(BadStream):
        store.put("ab" * 32, DATA, "gbt", "oracle")
    for _ in range(2):
        store.put(ID, DATA, "gbt", "oracle")
    assert path_in(store, ID).read_bytes() == DATA
    assert Store(tmp_path).sizes() == {ID: len(DATA)}
    assert not list((tmp_path / "incoming").iterdir())


def test_a_disk_that_refuses_leaves_the_store_without_it(tmp_path: Path) -> None:
    """Another attempt to put it may go well."""
    disk = FullDisk()
    disk.full = True
    store = Store(tmp_path, disk)
    with pytest.raises(StorageError, match="No space left"):
        store.put(ID, DATA, "gbt", "oracle")
    assert not store.has(ID)
    disk.full = False
    store.put(ID, DATA, "gbt", "oracle")
    assert store.has(ID)


def test_only_what_is_named_and_old_is_deleted(tmp_path: Path) -> None:
    """With its folder; the rest stays, and is told."""
    store = Store(tmp_path)
    old, young, result = (put(store, data) for data in (b"old", b"young", b"result"))
    for artifact_id in (old, result):
        os.utime(path_in(store, artifact_id), (0, 0))
    folder, now_s = path_in(store, old).parent, path_in(store, young).stat().st_mtime
    store.collect_artifacts([old, young], DAY_S, now_s)
    assert not folder.exists()
    assert not store.has(old)
    assert store.has(result), "old, but nobody named it"
    assert {*Store(tmp_path).sizes()} == {young, result}
    checkpoint = put(store, b"checkpoint", CHECKPOINTS)
    store.collect_artifacts([result, checkpoint], 1e10, 0.0)
    assert {*store.sizes()} == {young, result}
    assert not store.has(checkpoint), "it is large, and no job goes on from it"


def test_what_somebody_has_touched_is_not_taken_for_whole(tmp_path: Path) -> None:
    """Deleted by hand, or damaged: the store does not have it any more, and can have it again."""
    store = Store(tmp_path)
    kept, gone, bad = (put(store, data) for data in (b"kept", b"gone", b"damaged"))
    path_in(store, gone).unlink()
    path_in(store, bad).write_bytes(b"DAMAGED")
    assert store.verify(kept) == 4
    assert store.verify(gone) is None
    assert store.verify(bad) is None
    assert not store.has(bad)
    assert put(store, b"damaged") == bad
    assert store.verify(bad) == 7


def test_what_is_stored_meanwhile_does_not_end_a_look_at_all_of_it(tmp_path: Path) -> None:
    """A coordinator that goes on from its ledger looks; another thread may just take one in."""

    class Busy(FullDisk):
        """One that takes something in at the first look."""

        store: Store | None = None

        def size_bytes(self, path: Path) -> int | None:
            """See `Disk`."""
            store, self.store = self.store, None
            if store is not None:
                store.put(ID, DATA, "gbt", "oracle")
            return super().size_bytes(path)

    disk = Busy()
    store = Store(tmp_path, disk)
    known = {put(store, b"one"): 3, put(store, b"second"): 6}
    disk.store = store
    assert store.sizes().items() >= known.items()
    assert store.has(ID)


def test_what_a_killed_process_was_making_goes_with_the_next_start(tmp_path: Path) -> None:
    """A list of chunks that is whole stays."""
    Store(tmp_path)
    half, whole = (tmp_path / "incoming" / f"{IDENTITY}.{end}" for end in ("json.making", "json"))
    for path in (half, whole):
        path.write_bytes(b"{")
    Store(tmp_path)
    assert [path for path in (half, whole) if path.exists()] == [whole]
