"""The ledger: one SQLite file, written by the coordinator alone.

Every transition is one conditional UPDATE in a transaction that appends to the history as well. An
UPDATE that matches no row means that the mirror in memory is wrong: `LedgerConflict`, after which
the caller reloads.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import JsonValue

from broker.errors import BadMessage, StorageError
from broker.protocol.messages import OperatorResponse
from coordinator.jobs.jobs import Change, Job, StoredCheckpoint
from coordinator.jobs.plan_entries import spec_from_json, spec_to_json
from coordinator.jobs.records import (
    Action,
    AttemptFilter,
    BundleKept,
    BundlesFiled,
    FleetRecord,
    HostForgotten,
    HostRecord,
    Record,
    RequestKey,
    Result,
    Revocation,
    StoryFilter,
)
from coordinator.jobs.states import JobState
from coordinator.ledger import attempts, chronicle, database, host_rows, results
from coordinator.ledger.results import Brought
from coordinator.ledger.statements import scripts, sql

FILE_NAME: Final = "training_jobs.db"
LIVE_FACTOR: Final = 10


class LedgerConflict(StorageError):  # noqa: N818 - a conflict is what it is
    """A conditional UPDATE matched no row: the mirror in memory does not agree with the file."""


class Ledger:
    """The jobs and their history in one SQLite file.

    Raises `StorageError` naming the file when it cannot be opened, is not a ledger, is damaged, or
    was written by a newer version.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        copy: bool = False,
        note: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Open or create the ledger at `path` (`":memory:"` for tests).

        With `copy`, work on a copy in memory and only read the file, whoever is writing to it.
        `note` is told the number of the newest event after each commit that adds some.
        """
        self._path = str(path)
        self._note, self._newest = note, 0
        how = database.open_copy if copy else database.open_file
        self._db = how(self._path, scripts())

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def load(self) -> dict[str, Job]:
        """Return every job by its id. Raises `StorageError` when a row cannot be read."""
        try:
            with database.refusals(self._path):
                found = self._db.execute(sql("load_jobs"))
                names = [column[0] for column in found.description]
                jobs = (_job(dict(zip(names, row))) for row in found)
                return {job.job_id: job for job in jobs}
        except (ValueError, KeyError) as error:
            raise StorageError(f"ledger {self._path}: a row cannot be read: {error}") from error

    def load_hosts(self) -> dict[str, HostRecord]:
        """Return what is remembered of each host. Raises `StorageError`."""
        with database.refusals(self._path):
            return host_rows.load(self._db)

    def hosts(self) -> set[str]:
        """Return the names of all hosts that it has something of. Raises `StorageError`."""
        with database.refusals(self._path):
            return {row[0] for row in self._db.execute(sql("host_names"))}

    def load_fleet(self) -> FleetRecord:
        """Return what is remembered of the fleet as a whole. Raises `StorageError`."""
        with database.refusals(self._path):
            return host_rows.load_fleet(self._db)

    def commit(self, changes: Sequence[Change | Record]) -> None:
        """Record all changes in one durable transaction, or none of them.

        Raises `LedgerConflict` when a row is not as the change expects it, `StorageError` when the
        disk refuses.
        """
        if not changes:
            return
        with database.refusals(self._path), database.transaction(self._db):
            for change in changes:
                if isinstance(change, Change):
                    self._apply(change)
                else:
                    self._remember(change)
        if any(isinstance(change, Change) for change in changes):
            self._note(self._newest)

    def newest_event(self) -> int:
        """Return the number of the newest event of any job; 0 without one. Raises `StorageError`.

        It only grows: the newest event of a job is never deleted.
        """
        with database.refusals(self._path):
            (newest,) = self._db.execute(sql("newest_event")).fetchone()
        return int(newest)

    def bundle_sizes(self) -> dict[str, int]:
        """Return the size in bytes of each artifact that is kept here. Raises `StorageError`."""
        with database.refusals(self._path):
            return dict(self._db.execute(sql("bundle_sizes")))

    def bundle(self, artifact_id: str) -> BundleKept | None:
        """Return an artifact that is kept here, or none. Raises `StorageError`."""
        with database.refusals(self._path):
            row = self._db.execute(sql("load_bundle"), (artifact_id,)).fetchone()
        return None if row is None else BundleKept(*row)

    def events(self, job_id: str, limit: int = 200) -> list[dict[str, JsonValue]]:
        """Return the newest `limit` events of a job, oldest first. Raises `StorageError`."""
        with database.refusals(self._path):
            rows = self._db.execute(sql("events_of_job"), (job_id, limit)).fetchall()
        keys = ("at", "event", "from", "to", "attempt", "host", "who", "why", "ran_s")
        return [dict(zip(keys, row, strict=True)) for row in reversed(rows)]

    def load_answers(self, limit: int) -> dict[RequestKey, tuple[str, OperatorResponse]]:
        """Return the newest answers to commands, oldest first, and when (RFC 3339) each was given.

        Raises `StorageError`.
        """
        with database.refusals(self._path):
            try:
                return chronicle.answers(self._db, limit)
            except BadMessage as error:
                raise StorageError(f"ledger {self._path}: an answer: {error}") from error

    def load_revoked(self) -> dict[str, Revocation]:
        """Return the hosts whose certificates are revoked, by name. Raises `StorageError`."""
        with database.refusals(self._path):
            return chronicle.revoked(self._db)

    def story(self, wanted: StoryFilter) -> dict[str, JsonValue]:
        """Return a page of all that happened, see `chronicle.page`. Raises `StorageError`."""
        with database.refusals(self._path):
            return chronicle.page(self._db, wanted)

    def attempts(self, wanted: AttemptFilter) -> dict[str, JsonValue]:
        """Return a page of ended attempts, see `attempts.page`. Raises `StorageError`."""
        with database.refusals(self._path):
            return attempts.page(self._db, wanted)

    def results(self, job_id: str) -> list[Result]:
        """Return what a job's attempts have brought, see `results`. Raises `StorageError`."""
        with database.refusals(self._path):
            return results.of_job(self._db, job_id)

    def brought(self) -> Brought:
        """Return the results that all attempts have brought, see `results`.

        Raises `StorageError`.
        """
        with database.refusals(self._path):
            return results.brought(self._db)

    def set_aside_since(self, at: str) -> frozenset[str]:
        """Return what was set aside lately, see `results`. Raises `StorageError`."""
        with database.refusals(self._path):
            return results.set_aside_since(self._db, at)

    def prune_actions(self, older_than: str, answers: int, most_turned_away: int) -> int:
        """Delete old actions, durably; return how many, see `chronicle.prune`.

        Raises `StorageError`.
        """
        with database.refusals(self._path), database.transaction(self._db):
            return chronicle.prune(self._db, older_than, answers, most_turned_away)

    def prune_events(self, keep_per_job: int, older_than: str) -> int:
        """Delete old events, durably; return how many. Raises `StorageError`.

        An event goes when it and all before it of its job are older than `older_than` (RFC 3339),
        and its job has at least `keep_per_job` (1 or more) newer ones; a job that is not final
        keeps `LIVE_FACTOR` times as many, whatever becomes of it next. What is left of a history
        is its end without a gap, so that replaying it still gives the row.
        """
        if keep_per_job < 1:
            raise ValueError("the newest event of a job is never deleted")
        values = {
            "keep": keep_per_job,
            "keep_live": LIVE_FACTOR * keep_per_job,
            "older_than": older_than,
        }
        with database.refusals(self._path), database.transaction(self._db):
            return self._db.execute(sql("prune_events"), values).rowcount

    def _remember(self, record: Record) -> None:
        match record:
            case HostRecord() | FleetRecord():
                host_rows.remember(self._db, record)
            case HostForgotten(host):
                self._db.execute(sql("delete_host"), (host,))
            case Action():
                chronicle.record(self._db, record)
            case BundleKept(artifact_id, data, model, mode):
                self._db.execute(sql("keep_bundle"), (artifact_id, model, mode, data))
            case BundlesFiled(artifact_ids):
                gone = [(artifact_id,) for artifact_id in artifact_ids]
                self._db.executemany(sql("delete_bundle"), gone)

    def _apply(self, change: Change) -> None:
        before = change.before
        same_spec = before is not None and before.spec is change.after.spec
        values = _values(change.after, spec_too=not same_spec)
        if before is None:
            self._db.execute(sql("insert_job"), values)
        else:
            values |= {"was_state": before.state.value, "was_attempt": before.attempt}
            if self._db.execute(sql("update_job"), values).rowcount != 1:
                raise LedgerConflict(
                    f"ledger {self._path}: job {before.job_id} is no longer "
                    f"{before.state.value} with attempt {before.attempt}"
                )
        after = change.after
        result = after.artifact_id if change.event in results.BRINGS else None
        added = self._db.execute(
            sql("insert_event"),
            (
                after.job_id,
                change.at,
                change.event.value,
                None if before is None else before.state.value,
                after.state.value,
                change.attempt,
                after.host,
                change.who,
                change.why,
                change.ran_s,
                result,
                None if result is None else change.size_bytes,
            ),
        )
        self._newest = added.lastrowid or 0


def _values(job: Job, *, spec_too: bool) -> dict[str, Any]:
    spec, left_off = job.spec, job.checkpoint
    return {
        "job_id": spec.job_id,
        "name": spec.name,
        "model": spec.model,
        "mode": spec.mode,
        "spec": spec_to_json(spec) if spec_too else None,
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
        "failures": job.failures,
        "not_before": job.not_before,
        "checkpoint_id": left_off.artifact_id if left_off else None,
        "checkpoint_bytes": left_off.size_bytes if left_off else None,
        "checkpoint_attempt": left_off.attempt if left_off else None,
        "submitted_by": job.submitted_by,
        "ran_s": job.ran_s,
        "void_attempt": job.void_attempt,
    }


def _job(row: Mapping[str, Any]) -> Job:
    return Job(
        spec=spec_from_json(row["spec"]),
        state=JobState(row["state"]),
        created_at=sys.intern(row["created_at"]),
        pending_since=sys.intern(row["pending_since"]),
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
        failures=row["failures"],
        not_before=row["not_before"],
        checkpoint=_checkpoint(row),
        submitted_by=row["submitted_by"],
        ran_s=row["ran_s"],
        void_attempt=row["void_attempt"],
    )


def _checkpoint(row: Mapping[str, Any]) -> StoredCheckpoint | None:
    if row["checkpoint_id"] is None:
        return None
    return StoredCheckpoint(
        row["checkpoint_id"], row["checkpoint_bytes"], row["checkpoint_attempt"]
    )
