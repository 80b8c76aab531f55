"""The ledger: one SQLite file, written by the coordinator alone.

Every transition is one conditional UPDATE in a transaction that appends to the history as well. An
UPDATE that matches no row means that the mirror in memory is wrong: `LedgerConflict`, after which
the caller reloads.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import JsonValue, TypeAdapter

from broker.errors import BadMessage, StorageError
from broker.protocol import messages as m
from coordinator.jobs import records
from coordinator.jobs.jobs import Change, Job, StoredCheckpoint
from coordinator.jobs.plan_entries import spec_from_json, spec_to_json
from coordinator.jobs.states import JobState
from coordinator.ledger import attempts, chronicle, database
from coordinator.ledger.database import sql

FILE_NAME: Final = "training_jobs.db"
# Columns of the table of jobs that are fields of `Job`.
_FIELDS: Final = (
    "attempt", "losses", "host", "instance", "error", "error_kind", "artifact_id", "created_at",
    "pending_since", "started_at", "finished_at", "failures", "not_before", "submitted_by", "ran_s",
    "void_attempt",
)  # fmt: skip

T = TypeVar("T")


@functools.cache  # built when first used
def _reader(kind: Any) -> Callable[[str], Any]:
    return TypeAdapter(kind).validate_json


class LedgerConflict(StorageError):  # noqa: N818 - a conflict is what it is
    """A conditional UPDATE matched no row: the mirror in memory does not agree with the file."""


class Ledger:
    """The jobs and their history in one SQLite file.

    Every method raises `StorageError`, which names the file, where that cannot be read or written.
    Opening does so also for what is not a ledger, is damaged, or is of another version.
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
        self._db = how(self._path, database.scripts())

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def load(self) -> dict[str, Job]:
        """Return every job by its id. Raises `StorageError` when a row cannot be read."""
        try:
            with database.refusals(self._path):
                found = self._db.execute(sql("load_jobs"))
                names = [column[0] for column in found.description]
                jobs = (_job(dict(zip(names, row))) for row in found)  # quicker than by the row
                return {job.job_id: job for job in jobs}
        except (ValueError, KeyError) as error:
            raise StorageError(f"ledger {self._path}: a row cannot be read: {error}") from error

    def load_hosts(self) -> dict[str, records.HostRecord]:
        """Return what is decided about each host."""
        return {one.host: one for one in self._parsed(records.HostRecord, "load_hosts")}

    def load_fleet(self) -> records.FleetRecord:
        """Return what is decided about the fleet as a whole."""
        return next(iter(self._parsed(records.FleetRecord, "load_fleet")), records.FleetRecord())

    def load_pushed(self) -> list[records.PushedRecord]:
        """Return the programs and datasets, in the order in which they were pushed."""
        return self._parsed(records.PushedRecord, "load_pushed")

    def commit(self, changes: Sequence[Change | records.Record]) -> None:
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
        """Return the number of the newest event of any job, which only grows; 0 without one."""
        return int(self._rows("newest_event")[0][0])

    def bundle_sizes(self) -> dict[str, int]:
        """Return the size in bytes of each artifact that is kept here."""
        return dict(self._rows("bundle_sizes"))

    def bundle(self, artifact_id: str) -> records.BundleKept | None:
        """Return an artifact that is kept here, or none."""
        rows = self._rows("load_bundle", artifact_id)
        return records.BundleKept(*rows[0]) if rows else None

    def events(self, job_id: str, limit: int = 200) -> list[dict[str, JsonValue]]:
        """Return the newest `limit` events of a job, oldest first."""
        rows = reversed(self._rows("events_of_job", job_id, limit))
        return [{**dict(row), "why": json.loads(row["why"])} for row in rows]

    def load_answers(self, limit: int) -> dict[records.RequestKey, tuple[str, m.OperatorResponse]]:
        """Return the newest answers to commands, oldest first, each with its time (RFC 3339)."""
        try:
            return self._read(chronicle.answers, limit)
        except BadMessage as error:
            raise StorageError(f"ledger {self._path}: an answer: {error}") from error

    def load_revoked(self) -> dict[str, records.Revocation]:
        """Return the hosts whose certificates are revoked, by name."""
        return {host: records.Revocation(at, who) for host, at, who in self._rows("revoked_hosts")}

    def story(self, wanted: m.AskEvents, job_id: str | None = None) -> dict[str, JsonValue]:
        """Return a page of all that happened, see `chronicle.page`."""
        return self._read(chronicle.page, wanted, job_id)

    def attempts(self, wanted: m.AskAttempts) -> dict[str, JsonValue]:
        """Return a page of ended attempts, see `attempts.page`."""
        return self._read(attempts.page, wanted)

    def results(self, job_id: str) -> list[records.Result]:
        """Return the results of a job's attempts, by attempt; see `attempts.results`."""
        return self._read(attempts.results, job_id)

    def set_aside_since(self, at: str) -> set[str]:
        """Return the artifacts that were set aside at `at` (RFC 3339) or later."""
        return {artifact_id for (artifact_id,) in self._rows("set_aside_since", at) if artifact_id}

    def _read(self, query: Callable[..., T], *wanted: object) -> T:
        with database.refusals(self._path):
            return query(self._db, *wanted)

    def _rows(self, name: str, *values: object) -> list[Any]:
        with database.refusals(self._path):
            return self._db.execute(sql(name), values).fetchall()

    def _parsed(self, kind: Callable[..., T], name: str) -> list[T]:
        """Return what the rows of a statement have as JSON in their one column."""
        read = _reader(kind)
        try:
            return [read(text) for (text,) in self._rows(name)]
        except ValueError as error:
            raise StorageError(f"ledger {self._path}: a row cannot be read: {error}") from error

    def prune_actions(self, older_than: str, answers: int, most_turned_away: int) -> int:
        """Delete old actions, durably; return how many, see `chronicle.prune`."""
        with database.refusals(self._path), database.transaction(self._db):
            return chronicle.prune(self._db, older_than, answers, most_turned_away)

    def prune_events(self, keep_per_job: int, older_than: str) -> int:
        """Delete old events, durably; return how many.

        An event goes when it and all before it of its job are older than `older_than` (RFC 3339),
        and its job has at least `keep_per_job` (1 or more) newer ones. What is left of a history
        is its end without a gap, so that replaying it still gives the row.
        """
        values = {"keep": keep_per_job, "older_than": older_than}
        with database.refusals(self._path), database.transaction(self._db):
            return self._db.execute(sql("prune_events"), values).rowcount

    def _remember(self, record: records.Record) -> None:
        match record:
            case records.HostRecord():
                self._db.execute(sql("put_host"), (record.host, json.dumps(asdict(record))))
            case records.FleetRecord():
                self._db.execute(sql("put_fleet"), (json.dumps(asdict(record)),))
            case records.HostForgotten(host):
                self._db.execute(sql("delete_host"), (host,))
            case records.Action():
                chronicle.record(self._db, record)
            case records.PushedRecord(offer, at, who):
                values = (offer.title, at, who, offer.model_dump_json())
                self._db.execute(sql("put_pushed"), values)
            case records.PushedRemoved(title):
                self._db.execute(sql("delete_pushed"), (title,))
            case records.BundleKept(artifact_id, data, model, mode):
                self._db.execute(sql("keep_bundle"), (artifact_id, model, mode, data))
            case records.BundlesFiled(artifact_ids):
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
        result = after.artifact_id if change.event in attempts.BRINGS else None
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
                json.dumps(change.why),
                change.ran_s,
                result,
                None if result is None else change.size_bytes,
            ),
        )
        self._newest = added.lastrowid or 0


def _values(job: Job, *, spec_too: bool) -> dict[str, Any]:
    spec, checkpoint = job.spec, job.checkpoint
    return {name: getattr(job, name) for name in _FIELDS} | {
        "job_id": spec.job_id,
        "name": spec.name,
        "model": spec.model,
        "mode": spec.mode,
        "spec": spec_to_json(spec) if spec_too else None,
        "priority": spec.priority,
        "in_plan": int(job.in_plan),
        "state": job.state.value,
        "metrics": None if job.metrics is None else json.dumps(dict(job.metrics)),
        "checkpoint_id": checkpoint.artifact_id if checkpoint else None,
        "checkpoint_bytes": checkpoint.size_bytes if checkpoint else None,
        "checkpoint_attempt": checkpoint.attempt if checkpoint else None,
    }


def _job(row: Mapping[str, Any]) -> Job:
    checkpoint_id = row["checkpoint_id"]
    return Job(
        spec=spec_from_json(row["spec"]),
        state=JobState(row["state"]),
        in_plan=bool(row["in_plan"]),
        metrics=None if row["metrics"] is None else json.loads(row["metrics"]),
        checkpoint=None
        if checkpoint_id is None
        else StoredCheckpoint(checkpoint_id, row["checkpoint_bytes"], row["checkpoint_attempt"]),
        **{name: row[name] for name in _FIELDS},
    )
