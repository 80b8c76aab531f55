"""The ledger: one SQLite file, written by the coordinator alone; the only importer of sqlite3.

Every transition is one conditional UPDATE in a transaction that appends to the history as well. An
UPDATE that matches no row means that the mirror in memory is wrong: `LedgerConflict`, after which
the caller reloads.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

from pydantic import JsonValue

from broker.errors import StorageError
from coordinator.jobs import Change, Job
from coordinator.plan import spec_from_json, spec_to_json
from coordinator.states import JobState

SCHEMA_VERSION: Final = 1
FILE_NAME: Final = "training_jobs.db"

_COLUMNS: Final = (
    "name",
    "model",
    "mode",
    "spec",
    "priority",
    "in_plan",
    "state",
    "attempt",
    "losses",
    "host",
    "instance",
    "error",
    "artifact_id",
    "metrics",
    "created_at",
    "pending_since",
    "started_at",
    "finished_at",
)
# Names of our own columns only; every value is bound.
_INSERT: Final = (
    f"INSERT INTO jobs (job_id, {', '.join(_COLUMNS)})"  # noqa: S608 - see above
    f" VALUES (:job_id, {', '.join(':' + name for name in _COLUMNS)})"
)
_UPDATE: Final = (
    f"UPDATE jobs SET {', '.join(f'{name} = :{name}' for name in _COLUMNS)}"  # noqa: S608 - see above
    " WHERE job_id = :job_id AND state = :was_state AND attempt = :was_attempt"
)
_EVENT: Final = (
    "INSERT INTO events (job_id, at, event, from_state, to_state, attempt, host, who, why)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class LedgerConflict(StorageError):  # noqa: N818 - a conflict is what it is
    """A conditional UPDATE matched no row: the mirror in memory does not agree with the file."""


class Ledger:
    """The jobs and their history in one SQLite file.

    Raises `StorageError` naming the file when it cannot be opened, is not a ledger, is damaged, or
    was written by a newer version.
    """

    def __init__(self, path: Path | str) -> None:
        """Open or create the ledger at `path` (`":memory:"` for tests)."""
        self._path = str(path)
        try:
            self._db = sqlite3.connect(self._path, timeout=5.0, isolation_level=None)
            self._prepare()
        except sqlite3.Error as error:
            raise StorageError(
                f"ledger {self._path}: {error}; is another coordinator using it? "
                "If the file is damaged, restore a copy or move it away to start afresh"
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def load(self) -> dict[str, Job]:
        """Return every job by its id. Raises `StorageError` when a row cannot be read."""
        self._db.row_factory = sqlite3.Row
        try:
            rows = self._db.execute("SELECT * FROM jobs").fetchall()
            return {row["job_id"]: _job(row) for row in rows}
        except (sqlite3.Error, ValueError, KeyError) as error:
            raise StorageError(f"ledger {self._path}: a row cannot be read: {error}") from error
        finally:
            self._db.row_factory = None

    def commit(self, changes: Sequence[Change]) -> None:
        """Record all changes in one durable transaction, or none of them.

        Raises `LedgerConflict` when a row is not as the change expects it, `StorageError` when the
        disk refuses.
        """
        if not changes:
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for change in changes:
                self._apply(change)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._rollback()
            raise StorageError(f"ledger {self._path}: {error}") from error
        except LedgerConflict:
            self._rollback()
            raise

    def events(self, job_id: str, limit: int = 200) -> list[dict[str, JsonValue]]:
        """Return the newest `limit` events of a job, oldest first."""
        rows = self._db.execute(
            "SELECT at, event, from_state, to_state, attempt, host, who, why FROM events"
            " WHERE job_id = ? ORDER BY seq DESC LIMIT ?",
            (job_id, limit),
        ).fetchall()
        keys = ("at", "event", "from", "to", "attempt", "host", "who", "why")
        return [dict(zip(keys, row, strict=True)) for row in reversed(rows)]

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA foreign_keys = ON")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version == 0:
            schema = resources.files("coordinator").joinpath("schema.sql").read_text("utf-8")
            self._db.executescript(
                f"BEGIN; {schema} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
            )
        elif version != SCHEMA_VERSION:
            raise StorageError(
                f"ledger {self._path}: schema version {version}; this program knows "
                f"{SCHEMA_VERSION}: install the version that wrote it"
            )
        (verdict,) = self._db.execute("PRAGMA quick_check").fetchone()
        if verdict != "ok":
            raise StorageError(f"ledger {self._path}: damaged ({verdict}); restore a copy")

    def _apply(self, change: Change) -> None:
        values = _values(change.after)
        before = change.before
        if before is None:
            self._db.execute(_INSERT, values)
        else:
            values |= {"was_state": before.state.value, "was_attempt": before.attempt}
            if self._db.execute(_UPDATE, values).rowcount != 1:
                raise LedgerConflict(
                    f"ledger {self._path}: job {before.job_id} is no longer "
                    f"{before.state.value} with attempt {before.attempt}"
                )
        after = change.after
        self._db.execute(
            _EVENT,
            (
                after.job_id,
                change.at,
                change.event.value,
                None if before is None else before.state.value,
                after.state.value,
                after.attempt,
                after.host,
                change.who,
                change.why,
            ),
        )

    def _rollback(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")


def _values(job: Job) -> dict[str, Any]:
    spec = job.spec
    return {
        "job_id": spec.job_id,
        "name": spec.name,
        "model": spec.model,
        "mode": spec.mode,
        "spec": spec_to_json(spec),
        "priority": spec.priority,
        "in_plan": int(job.in_plan),
        "state": job.state.value,
        "attempt": job.attempt,
        "losses": job.losses,
        "host": job.host,
        "instance": job.instance,
        "error": job.error,
        "artifact_id": job.artifact_id,
        "metrics": None if job.metrics is None else json.dumps(dict(job.metrics), sort_keys=True),
        "created_at": job.created_at,
        "pending_since": job.pending_since,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
    }


def _job(row: Mapping[str, Any]) -> Job:
    return Job(
        spec=spec_from_json(row["spec"]),
        state=JobState(row["state"]),
        created_at=row["created_at"],
        pending_since=row["pending_since"],
        in_plan=bool(row["in_plan"]),
        attempt=row["attempt"],
        losses=row["losses"],
        host=row["host"],
        instance=row["instance"],
        error=row["error"],
        artifact_id=row["artifact_id"],
        metrics=None if row["metrics"] is None else json.loads(row["metrics"]),
        started_at=row["started_at"],
        finished_at=row["finished_at"],
    )
