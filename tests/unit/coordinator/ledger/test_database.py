"""Migrations: every row of an older file is kept, or nothing is changed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from broker.errors import StorageError
from coordinator.ledger import database
from coordinator.ledger.database import scripts
from coordinator.ledger.ledger import Ledger
from tests.system.test_ledger_kill import batches

# What a later version might bring.
STEP = "ALTER TABLE hosts ADD COLUMN note TEXT"


def rows(path: Path, table: str) -> list[dict[str, object]]:
    """Every row of a table, as names and values, in order."""
    with closing(sqlite3.connect(path)) as file:
        file.row_factory = sqlite3.Row
        return [dict(row) for row in file.execute(f"SELECT * FROM {table} ORDER BY 1")]  # noqa: S608 - ours


def dump(path: Path) -> list[str]:
    """All that is in a file, as SQL, and its version."""
    with closing(sqlite3.connect(path)) as file:
        return [*file.iterdump(), str(file.execute("PRAGMA user_version").fetchone())]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A ledger of today's schema with jobs in several states, which later ones migrate."""
    path = tmp_path / "training_jobs.db"
    ledger = Ledger(path)
    for batch in batches():
        ledger.commit(batch)
    ledger.close()
    return path


def test_a_file_is_migrated_with_every_row(old: Path) -> None:
    """Each script runs once, in order, and the rows stay.

    `training_jobs.db.v<N>` is the file as it was, for whoever goes back to that version.
    """
    before, whole = {table: rows(old, table) for table in ("jobs", "events", "hosts")}, dump(old)
    assert all(before.values())
    later = "UPDATE hosts SET note = 'seen'"
    database.open_file(str(old), (*scripts(), STEP, later)).close()
    after = {table: rows(old, table) for table in before}
    assert after == before | {"hosts": [row | {"note": "seen"} for row in before["hosts"]]}
    database.open_file(str(old), (*scripts(), STEP, later)).close()
    assert rows(old, "hosts") == after["hosts"]
    (copy,) = old.parent.glob(f"{old.name}.v*")
    assert dump(copy) == whole


def test_a_file_of_a_newer_version_is_refused(old: Path) -> None:
    """An older program would not know what is in it; the file stays as it is."""
    database.open_file(str(old), (*scripts(), STEP)).close()
    before = dump(old)
    with pytest.raises(StorageError, match="install the version that wrote it") as refusal:
        Ledger(old)
    assert f"{old}: " in str(refusal.value)
    assert f"schema version {len(scripts()) + 1}" in str(refusal.value)
    assert dump(old) == before


@pytest.mark.parametrize(
    ("then", "words"),
    [
        ("INSERT INTO none VALUES (1)", "none"),
        ("DELETE FROM jobs WHERE name = 'one'", "belongs to no row"),
        ("nonsense", "syntax"),
    ],
)
def test_a_migration_that_fails_changes_nothing(old: Path, then: str, words: str) -> None:
    """A statement fails half-way, or leaves rows without their job: the file is as it was."""
    before = dump(old)
    script = f"CREATE TABLE more (x); UPDATE jobs SET priority = 9; {then}"  # noqa: S608 - ours
    with pytest.raises(StorageError, match=words):
        database.open_file(str(old), (*scripts(), script))
    assert dump(old) == before
    database.open_file(str(old), (*scripts(), STEP)).close()  # the right one still goes well


def test_steps_before_the_one_that_fails_stay(old: Path) -> None:
    """Each step is a version of its own; the next start goes on from there."""
    with pytest.raises(StorageError):
        database.open_file(str(old), (*scripts(), STEP, "nonsense"))
    with closing(sqlite3.connect(old)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (len(scripts()) + 1,)


def test_a_copy_in_memory_leaves_an_old_file_as_it_is(old: Path) -> None:
    before = old.read_bytes()
    database.open_copy(str(old), (*scripts(), STEP)).close()
    assert old.read_bytes() == before
    assert not list(old.parent.glob("*.v*"))
