"""An old ledger becomes a new one: every row comes along, or nothing is changed at all."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from broker.errors import StorageError
from coordinator.jobs.states import JobState
from coordinator.ledger import database
from coordinator.ledger.ledger import Ledger, migrations
from coordinator.ledger.replay import contradiction

DATA = Path(__file__).resolve().parents[1] / "data"
NEWEST = len(migrations())
EARLIER = range(1, NEWEST)


def rows(path: Path, table: str) -> list[dict[str, object]]:
    """Every row of a table, as names and values, in order."""
    with closing(sqlite3.connect(path)) as file:
        file.row_factory = sqlite3.Row
        return [dict(row) for row in file.execute(f"SELECT * FROM {table} ORDER BY 1")]  # noqa: S608 - ours


def dump(path: Path) -> list[str]:
    """All that is in a file, as SQL, and its version."""
    with closing(sqlite3.connect(path)) as file:
        return [*file.iterdump(), str(file.execute("PRAGMA user_version").fetchone())]


def schema(path: Path) -> set[tuple[str, str]]:
    """Every table and index as it was made, without the comments."""
    made = rows(path, "sqlite_master")
    return {(str(row["name"]), re.sub(r" *--.*", "", str(row["sql"]))) for row in made}


@pytest.fixture
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A ledger as an earlier version of the program wrote it."""
    path = tmp_path / "training_jobs.db"
    with closing(sqlite3.connect(path)) as file:
        file.executescript((DATA / f"ledger_v{request.param}.sql").read_text("utf-8"))
    return path


each_earlier = pytest.mark.parametrize("old", EARLIER, indirect=True)
oldest = pytest.mark.parametrize("old", [1], indirect=True)


@each_earlier
def test_an_earlier_ledger_loads_with_every_row(old: Path) -> None:
    """Whatever was in the file is there afterwards, jobs in each state and all their history."""
    before = {table: rows(old, table) for table in ("jobs", "events")}
    assert {row["state"] for row in before["jobs"]} == {state.value for state in JobState}
    ledger = Ledger(old)
    jobs = ledger.load()
    assert len(jobs) == len(before["jobs"])
    assert all(not contradiction(job, ledger.events(job.job_id)) for job in jobs.values())
    ledger.close()
    for table, earlier in before.items():
        after = rows(old, table)
        assert [{name: row[name] for name in was} for row, was in zip(after, earlier)] == earlier
        assert len(after) == len(earlier)


@oldest
def test_what_a_ledger_did_not_know_yet_begins_empty(old: Path) -> None:
    """No job of version 1 has failed and been tried again, no host of it is drained."""
    ledger = Ledger(old)
    assert {(job.failures, job.not_before) for job in ledger.load().values()} == {(0, None)}
    assert ledger.load_hosts() == {}
    ledger.close()


@each_earlier
def test_a_migrated_ledger_has_the_schema_of_a_new_one(old: Path, tmp_path: Path) -> None:
    """No difference is left by which a later program could be surprised."""
    for path in (old, tmp_path / "new.db"):
        Ledger(path).close()
    assert schema(old) == schema(tmp_path / "new.db")
    Ledger(old).close()  # and it opens again as what it now is


@each_earlier
def test_a_copy_of_the_old_file_is_kept(old: Path) -> None:
    """`training_jobs.db.v<N>` is the file as it was, for whoever goes back to that version."""
    before = dump(old)
    Ledger(old).close()
    (copy,) = old.parent.glob(f"{old.name}.v*")
    assert dump(copy) == before
    assert dump(old) != before


@oldest
@pytest.mark.parametrize(
    ("then", "words"),
    [
        ("INSERT INTO none VALUES (1)", "none"),
        ("DELETE FROM jobs WHERE name = 'gbt-oracle'", "belongs to no row"),
        ("nonsense", "syntax"),
    ],
)
def test_a_migration_that_fails_changes_nothing(old: Path, then: str, words: str) -> None:
    """A statement fails half-way, or leaves rows without their job: the file is as it was."""
    before = dump(old)
    script = f"CREATE TABLE more (x); UPDATE jobs SET priority = 9; {then}"  # noqa: S608 - ours
    with pytest.raises(StorageError, match=words):
        database.open_file(str(old), (migrations()[0], script))
    assert dump(old) == before
    ledger = Ledger(old)  # the right migration still goes well
    assert len(ledger.load()) == 10
    ledger.close()


@oldest
def test_steps_before_the_one_that_fails_stay(old: Path) -> None:
    """Each step is a version of its own; the next start goes on from there."""
    with pytest.raises(StorageError):
        database.open_file(str(old), (*migrations(), "nonsense"))
    with closing(sqlite3.connect(old)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (NEWEST,)


@oldest
def test_a_copy_in_memory_leaves_an_old_file_as_it_is(old: Path) -> None:
    """Whoever only looks migrates nothing."""
    before, files = old.read_bytes(), set(old.parent.iterdir())
    ledger = Ledger(old, copy=True)
    assert len(ledger.load()) == 10
    ledger.close()
    assert (old.read_bytes(), set(old.parent.iterdir())) == (before, files)
