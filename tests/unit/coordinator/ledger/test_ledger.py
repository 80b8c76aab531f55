"""The ledger: all or nothing, on the condition that nothing moved, and it can be read back."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.clock import Now
from broker.errors import StorageError
from broker.protocol.messages import MAX_PAYLOAD_BYTES, OperatorResponse
from coordinator.jobs.jobs import Job, JobBook
from coordinator.jobs.plan_entries import HostPolicy, Plan
from coordinator.jobs.records import Action, FleetRecord, HostRecord
from coordinator.jobs.states import TRANSITIONS, Event, JobState, leads_to
from coordinator.ledger import database
from coordinator.ledger.database import sql
from coordinator.ledger.ledger import Ledger, LedgerConflict
from tests.harness.coordinator import HEX, spec
from tests.harness.replay import contradiction

NOW = Now(1.0, 1.8e9)


DETAILS: dict[Event, dict[str, Any]] = {
    Event.ASSIGNED: {"host": "pi"},
    Event.FAILED: {"error": "boom"},
    Event.EXHAUSTED: {"error": "lost"},
    Event.COMPLETED: {"artifact_id": HEX, "metrics": {"val_loss": 1, "auroc": 0.5}, "host": "pi"},
    Event.RESUMED: {"host": "pi"},
}


def move(book: JobBook, job: Job, event: Event, now: Now = NOW) -> Job:
    """Carry an event out as the handlers do."""
    more = DETAILS.get(event, {})
    if event is Event.ASSIGNED:
        more = more | {"attempt": job.attempt + 1}
    if event is Event.RESUMED:
        more = more | {"attempt": max(1, job.attempt)}
    return book.move(job, event, now, "test", "why", **more)


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with closing(Ledger(":memory:")) as made:
        yield made


@pytest.fixture
def book() -> JobBook:
    return JobBook()


def test_the_metric_that_was_said_first_stays_the_first(ledger: Ledger, book: JobBook) -> None:
    """Tables show it, after a restart as well."""
    job = book.add(spec(), NOW, "test")
    for event in (Event.ASSIGNED, Event.STARTED, Event.COMPLETED):
        job = move(book, job, event)
    ledger.commit(book.take_changes())
    assert list(ledger.load()[job.job_id].metrics or ()) == ["val_loss", "auroc"]


def test_a_commit_is_all_or_nothing(tmp_path: Path) -> None:
    """One change that does not fit undoes the whole batch (and is told as a conflict)."""
    ledger, book = Ledger(tmp_path / "l.db"), JobBook()
    job = book.add(spec(), NOW, "test")
    ledger.commit(book.take_changes())
    elsewhere = JobBook(ledger.load())
    move(elsewhere, elsewhere.get(job.job_id), Event.CANCELLED)
    ledger.commit(elsewhere.take_changes())

    book.add(spec("other"), NOW, "test")
    move(book, job, Event.ASSIGNED)
    with pytest.raises(LedgerConflict):
        ledger.commit(book.take_changes())
    assert [one.state for one in ledger.load().values()] == [JobState.CANCELLED]
    ledger.close()


def test_a_change_on_an_attempt_that_is_over_is_a_conflict(ledger: Ledger, book: JobBook) -> None:
    """The state alone does not tell: it may be the same again, with another attempt."""
    job = move(book, book.add(spec(), NOW, "test"), Event.ASSIGNED)
    ledger.commit(book.take_changes())
    stale = JobBook(ledger.load())
    move(book, move(book, job, Event.REFUSED), Event.ASSIGNED)
    ledger.commit(book.take_changes())
    move(stale, stale.get(job.job_id), Event.STARTED)
    with pytest.raises(LedgerConflict, match="attempt 1"):
        ledger.commit(stale.take_changes())


@pytest.mark.parametrize(
    "change",
    [
        "state = 'lost'", "state = 'running'", "state = 'completed'", "state = 'failed'",
        "error = 'x'", "finished_at = 'now'", "attempt = -1", "artifact_id = 'short'",
        "state = 'claimed', host = 'pi'", "priority = 'high'",
    ],
)  # fmt: skip
def test_impossible_rows_are_refused(tmp_path: Path, change: str) -> None:
    """Whoever writes them: the file itself says no."""
    ledger, book = Ledger(tmp_path / "l.db"), JobBook()
    book.add(spec(), NOW, "test")
    ledger.commit(book.take_changes())
    ledger.close()
    database = sqlite3.connect(tmp_path / "l.db")
    with pytest.raises(sqlite3.IntegrityError):
        database.execute(f"UPDATE jobs SET {change}")  # noqa: S608 - the test's own
    database.close()


def test_a_ledger_is_durable(tmp_path: Path) -> None:
    """WAL, and every commit is on the disk before anybody is told."""
    ledger = Ledger(tmp_path / "l.db")
    assert ledger._db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert ledger._db.execute("PRAGMA synchronous").fetchone()[0] == 2
    ledger.close()


def test_a_file_that_is_no_ledger_is_named(tmp_path: Path) -> None:
    """Not a database; in a folder that is not there."""
    junk = tmp_path / "junk.db"
    junk.write_bytes(b"this is no database at all, but long enough to be looked at" * 20)
    for path, words in ((junk, "not a database"), (tmp_path / "no" / "l.db", "l.db")):
        with pytest.raises(StorageError, match=words) as refusal:
            Ledger(path)
        assert str(path) in str(refusal.value)


def test_a_job_is_found_by_name_id_or_a_start() -> None:
    """A name that is exact wins over names that begin like it; an orphan yields to the plan."""
    book = JobBook()
    first = book.add(spec("gbt"), NOW, "test")
    second = book.add(spec("gbt-large"), NOW, "test")
    assert book.find("gbt") == [first]
    assert book.find("gbt-l") == [second]
    assert book.find(second.job_id) == [second]
    assert book.find(second.job_id[:10]) == [second]
    assert book.find("g") == [first, second]
    assert book.find("") == []
    assert book.find("nope") == []
    other = book.add(spec("gbt", seed=1), NOW, "test")
    book.move(first, Event.ORPHANED, NOW, "test", "", in_plan=False)
    assert [job.job_id for job in book.find("gbt")] == [other.job_id]
    assert book.find("g") == [second, other]
    assert [job.job_id for job in book.find(first.job_id[:10])] == [first.job_id]
    assert [job.job_id for job in book.namesakes(other)] == [first.job_id]


def test_hosts_are_remembered(ledger: Ledger, book: JobBook) -> None:
    """The newest record of a host counts, and is committed along with the jobs or not at all."""
    pi = HostRecord("pi", drained=True, at=NOW.text(), who="operator:anna", drained_now=True)
    sick = HostRecord(
        "tower", quarantine=("a", "b", "c"), quarantine_at=NOW.text(), at=NOW.text(),
        who="coordinator", snoozed_until="u", snoozed_by="x", snooze_s=9.5, snoozed_now=True,
    )  # fmt: skip
    rules = HostPolicy("pi", allow_jobs=("gbt",), cuda=False, quiet_hours=("22:00-07:00",))
    paused = FleetRecord(paused=True, at="t", who="w", plan=Plan((), {"pi": rules}, 7.0, "n"))
    assert ledger.load_fleet() == FleetRecord()
    ledger.commit([pi, sick, paused])
    assert ledger.load_hosts() == {"pi": pi, "tower": sick}
    assert ledger.load_fleet() == paused
    book.add(spec(), NOW, "test")
    resumed = HostRecord("pi", at=NOW.text(), who="operator:ben")
    woken = replace(sick, snoozed_until="", snoozed_by="", snooze_s=0.0, snoozed_now=False)
    ledger.commit([*book.take_changes(), resumed, woken])
    assert ledger.load_hosts() == {"pi": resumed, "tower": woken}

    stale = JobBook(ledger.load())
    job = move(stale, next(iter(stale.all())), Event.CANCELLED)
    ledger.commit(stale.take_changes())
    move(book, book.get(job.job_id), Event.CANCELLED)
    with pytest.raises(LedgerConflict):
        ledger.commit([pi, *book.take_changes()])
    assert ledger.load_hosts()["pi"] == resumed


@pytest.mark.parametrize("place", ["head", "page", "row", "index"])
def test_a_damaged_file_is_refused_with_the_remedy(tmp_path: Path, place: str) -> None:
    """A page of noise, an event without its job, an index that points elsewhere: none is served."""
    path = tmp_path / "l.db"
    ledger, book = Ledger(path), JobBook()
    for number in range(50):
        book.add(spec(str(number)), NOW, "test")
    ledger.commit(book.take_changes())
    ledger.close()
    if place in {"head", "page"}:
        with path.open("r+b") as file:
            file.seek(4096 * (3 if place == "page" else 0))
            file.write(b"\xa5" * 4096)
    else:
        database = sqlite3.connect(path, isolation_level=None)
        if place == "row":
            database.execute("DELETE FROM jobs WHERE name = '7'")
        else:
            database.execute("PRAGMA writable_schema = ON")
            database.execute(
                "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master"
                " WHERE name = 'hosts') WHERE name = 'events_by_job'"
            )
        database.close()
    before = path.read_bytes()
    with pytest.raises(StorageError, match=r"damaged.*fleet backup") as refusal:
        Ledger(path)
    assert str(path) in str(refusal.value)
    assert path.read_bytes() == before


def test_a_file_in_use_is_not_called_damaged(tmp_path: Path, monkeypatch: Any) -> None:
    """Whoever sees that another coordinator has it need not restore anything."""
    monkeypatch.setattr("coordinator.ledger.database._WAIT_S", 0.0)
    path = tmp_path / "l.db"
    Ledger(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StorageError, match="another coordinator") as refusal:
        Ledger(path)
    assert "damaged" not in str(refusal.value)
    other.close()


FORWARD = [word for word in TRANSITIONS if word is not Event.ADDED]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(FORWARD), st.integers(-3, 10)), max_size=80),
    st.integers(1, 5),
    st.integers(0, 200),
)
def test_what_is_left_of_a_history_still_gives_the_row(
    moves: list[tuple[Event, int]], keep: int, limit: int
) -> None:
    """Pruning takes a beginning, never more than it may, whichever way the clock has jumped."""
    ledger, book = Ledger(":memory:"), JobBook()
    job_id, wall_s = book.add(spec(), NOW, "test").job_id, NOW.wall_s
    for event, step_s in moves:
        job, wall_s = book.get(job_id), wall_s + step_s
        assert job is not None
        if leads_to(job.state, event) is not None:
            move(book, job, event, Now(1.0, wall_s))
    ledger.commit(book.take_changes())
    before = ledger.events(job_id, 1000)
    older_than = Now(1.0, NOW.wall_s + limit).text()

    deleted = ledger.prune_events(keep, older_than)
    after, (job,) = ledger.events(job_id, 1000), ledger.load().values()
    assert (job, contradiction(job, after)) == (book.get(job_id), "")
    gone, kept = before[:deleted], before[deleted:]
    assert after == kept
    assert all(str(event["at"]) < older_than for event in gone)
    assert len(after) >= min(len(before), keep)
    if len(after) > keep:
        assert max(str(event["at"]) for event in before[: deleted + 1]) >= older_than
    assert ledger.prune_events(keep, older_than) == 0
    ledger.close()


def test_a_job_that_was_lost_and_then_given_back_has_a_history_in_order(
    ledger: Ledger, book: JobBook
) -> None:
    """It stays pending, and lets go of its host."""
    job = book.add(spec(), NOW, "test")
    for event in (Event.ASSIGNED, Event.LOST):
        job = move(book, job, event)
    assert job.host is not None
    job = book.move(job, Event.CHANGED, NOW, "host:pi", "given back", host=None)
    ledger.commit(book.take_changes())
    assert contradiction(job, ledger.events(job.job_id)) == ""


def test_an_answer_that_is_too_large_to_be_heard_keeps_nobody_from_starting(ledger: Ledger) -> None:
    """It is our own; of what comes over the wire none of that size is taken."""
    answer = OperatorResponse(id="r", ok=False, data=["x" * MAX_PAYLOAD_BYTES])
    key = ("operator:op/cli", "r")
    ledger.commit([Action(NOW.text(), "operator:op", "run", "refused", "", key, answer=answer)])
    assert ledger.load_answers(1)[key] == (NOW.text(), answer)


def test_every_named_statement_fits_the_schema() -> None:
    """SQLite prepares each; none is named twice, and none is left that nobody uses."""
    folder = Path(database.__file__).parent
    text = (folder / "queries.sql").read_text("utf-8")
    names = re.findall(r"^-- name: (\w+)$", text, re.MULTILINE)
    assert len(names) == len(set(names)) > 20
    used = "".join(path.read_text("utf-8") for path in folder.glob("*.py"))
    with closing(database.open_file(":memory:", database.scripts())) as file:
        for name in names:
            assert f'"{name}"' in used
            named = dict.fromkeys(re.findall(r":(\w+)", sql(name)))
            file.execute(f"EXPLAIN {sql(name)}", named or (None,) * sql(name).count("?"))
