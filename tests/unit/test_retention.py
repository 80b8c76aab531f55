"""What the coordinator deletes of itself, and what it never does."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import messages as m
from broker.stream.ranges import RangeSet
from coordinator.jobs.plan_entries import CHECKPOINTS
from coordinator.ledger.ledger import FILE_NAME
from coordinator.store.store import Store
from tests.harness.disks import FullDisk
from tests.unit.test_results import FIRST, Scene, hex_of
from tests.unit.test_standing_back import refusing

DAY_S = 86_400.0


def _put(store: Store, data: bytes, mode: str = "oracle") -> str:
    artifact_id = hashlib.sha256(data).hexdigest()
    part, have = store.open_part(artifact_id, len(data), 1024)
    assert have == RangeSet()
    part.write(0, data)
    store.finish(part, "gbt", mode)
    return artifact_id


def _row(artifact_id: str, attempt: int) -> dict[str, Any]:
    return {"job_id": "1b" * 32, "attempt": attempt, "artifact_id": artifact_id}


def _rows(root: Path) -> list[tuple[str, int]]:
    lines = (root / "models" / "index.jsonl").read_text("utf-8").splitlines()
    return [(row["artifact_id"], row["attempt"]) for row in map(json.loads, lines)]


def test_only_what_is_named_and_old_is_deleted(tmp_path: Path) -> None:
    """With its folder; the rest stays, and is told."""
    store = Store(tmp_path)
    old, young, result = (_put(store, data) for data in (b"old", b"young", b"result"))
    path = store.path_of(old)
    assert path is not None
    for artifact_id in (old, result):
        found = store.path_of(artifact_id)
        assert found is not None
        os.utime(found, (0, 0))
    fresh = store.path_of(young)
    assert fresh is not None
    now_s = fresh.stat().st_mtime
    assert store.collect_artifacts([old, young], frozenset(), DAY_S, now_s) == {young: 5}
    assert not path.parent.exists()
    assert not store.has(old)
    assert store.has(result), "old, but nobody named it"
    assert {*Store(tmp_path).sizes()} == {young, result}


def test_what_somebody_has_deleted_keeps_nothing_else(tmp_path: Path) -> None:
    """Its file is gone, as if it had been deleted here."""
    store = Store(tmp_path)
    both = sorted(_put(store, data) for data in (b"one", b"other"))
    first, second = (store.path_of(artifact_id) for artifact_id in both)
    assert first is not None
    assert second is not None
    first.unlink()
    os.utime(second, (0, 0))
    assert store.collect_artifacts(both, frozenset(), DAY_S, 1e9) == {}
    assert not second.exists()
    assert not any(map(store.has, both))


def test_a_checkpoint_that_no_job_goes_on_from_is_deleted_at_once(tmp_path: Path) -> None:
    """It is large, and of no use to anybody."""
    store = Store(tmp_path)
    result, checkpoint = _put(store, b"result"), _put(store, b"checkpoint", CHECKPOINTS)
    assert store.collect_artifacts([result, checkpoint], frozenset(), DAY_S, 0.0) == {result: 6}
    assert not store.has(checkpoint)


def test_the_index_follows(tmp_path: Path) -> None:
    """One row for each job and artifact that is there: the newest; a later row is appended."""
    store = Store(tmp_path)
    old, result = _put(store, b"old"), _put(store, b"result")
    for row in (_row(old, 1), _row(result, 2), _row(result, 3)):
        store.index.append(row)
    found = store.path_of(old)
    assert found is not None
    os.utime(found, (0, 0))
    store.collect_artifacts([old], frozenset(), DAY_S, 1e9)
    assert _rows(tmp_path) == [(result, 3)]
    store.index.append(_row(result, 3))
    store.index.append(_row(result, 4))
    assert _rows(tmp_path) == [(result, 3), (result, 4)]


def test_what_somebody_has_touched_is_not_taken_for_whole(tmp_path: Path) -> None:
    """Deleted by hand, or damaged: the store does not have it any more, and can have it again."""
    store = Store(tmp_path)
    kept, gone, bad = (_put(store, data) for data in (b"kept", b"gone", b"damaged"))
    for artifact_id, data in ((gone, None), (bad, b"DAMAGED")):
        path = store.path_of(artifact_id)
        assert path is not None
        path.unlink() if data is None else path.write_bytes(data)
    assert store.verify(kept) == 4
    assert store.verify(gone) is None
    assert store.verify(bad) is None
    assert not store.has(bad)
    assert _put(store, b"damaged") == bad
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
                store.put(hex_of(FIRST), FIRST, "gbt", "oracle")
            return super().size_bytes(path)

    disk = Busy()
    store = Store(tmp_path, disk)
    known = {_put(store, b"one"): 3, _put(store, b"second"): 6}
    disk.store = store
    assert store.sizes().items() >= known.items()
    assert store.has(hex_of(FIRST))


@pytest.fixture
def set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A result that a requeue has set aside, to be deleted in a month."""
    monkeypatch.setattr("coordinator.ledger.database._WAIT_S", 0.0)
    scene = Scene(tmp_path)
    scene.brings(FIRST)
    scene.requeues()
    return scene


def test_a_ledger_that_refuses_keeps_no_file(set_aside: Scene) -> None:
    """On a full disk the files are what makes room."""
    set_aside.asks(m.AskCancel(id="c", job="job"))  # so that nothing else is to be written
    with refusing(set_aside.folder / FILE_NAME):
        set_aside.passes(31)
    assert not set_aside.coordinator.store.has(hex_of(FIRST))


def test_what_a_disk_did_not_delete_is_deleted_the_next_time(
    set_aside: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the log says; until then it is still there to be fetched."""
    disk = set_aside.coordinator.disk
    with monkeypatch.context() as context:
        context.setattr(disk, "unlink", _refuse)
        set_aside.passes(31)
    assert set_aside.fetches(1) == FIRST
    set_aside.passes(1)
    assert not set_aside.coordinator.store.has(hex_of(FIRST))


def test_a_clock_that_is_ahead_for_a_while_deletes_nothing(set_aside: Scene) -> None:
    """What is gone does not come back with the right time; what is too old by that one goes."""
    set_aside.coordinator.skew_s = 40 * DAY_S
    set_aside.passes(1)
    set_aside.coordinator.skew_s = 0.0
    set_aside.passes(1)
    assert set_aside.fetches(1) == FIRST
    set_aside.passes(31)
    assert not set_aside.coordinator.store.has(hex_of(FIRST))


def test_a_machine_that_has_slept_deletes_what_is_old_at_the_second_look(set_aside: Scene) -> None:
    """Its own clock for durations stands still meanwhile."""
    set_aside.coordinator.skew_s = 40 * DAY_S
    set_aside.passes(1)
    set_aside.passes(1)
    assert not set_aside.coordinator.store.has(hex_of(FIRST))


def _refuse(_path: Path) -> None:
    raise OSError(30, "Read-only file system")
