"""What operators ask that the core does not know: it is in the ledger, the store, or a log."""

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from typing import Any, Final

from pydantic import JsonValue

from broker.clock import rfc3339, seconds_of
from broker.errors import plain
from broker.protocol.messages import AskAttempts, AskCurves, AskEvents, AskLogs, AskShow
from broker.system.files import RealDisk
from coordinator.core.authorization import fitting
from coordinator.core.effects import LookUp, SendChunk
from coordinator.jobs.curve import in_fields
from coordinator.jobs.records import Result
from coordinator.ledger.ledger import Ledger
from coordinator.store.joblog import JobLogs
from coordinator.store.store import Store

log = logging.getLogger("fleet.coordinator")

EVENTS_BYTES: Final = 80_000  # of a job's history in one answer, beside the job itself


class Lookups:
    """Looks up. All methods raise `StorageError` where the ledger cannot be read."""

    def __init__(
        self, ledger: Ledger, store: Store, logs: JobLogs, disk: RealDisk, keep_results_s: float
    ) -> None:
        """Results that were set aside are kept for `keep_results_s`."""
        self._ledger = ledger
        self._store = store
        self._logs = logs
        self._disk = disk
        self._keep_results_s = keep_results_s

    def data(self, question: LookUp) -> dict[str, JsonValue]:
        """Return what the answer holds."""
        known: Any = question.data
        match question.ask:
            case AskShow():
                (job_id,) = question.job_ids
                newest = fitting(reversed(self._ledger.events(job_id)), EVENTS_BYTES)
                return {
                    **known,
                    "events": newest[::-1],
                    "results": [asdict(one) for one in self.results(job_id, known["artifact_id"])],
                    "keep_results_s": self._keep_results_s,
                }
            case AskEvents() as ask:
                return self._ledger.story(ask, *question.job_ids)
            case AskAttempts() as ask:
                return self._ledger.attempts(ask)
            case AskLogs(lines=lines):
                tail = self._logs.tail(known["job_id"], known["attempt"], lines)
                return {**known, **asdict(tail)}
            case AskCurves():
                found = ((one, self._logs.curves.get(one)) for one in question.job_ids)
                return {"curves": [in_fields(one, curve) for one, curve in found if curve]}

    def results(self, job_id: str, held: str | None) -> list[Result]:
        """Return what a job's attempts have brought; `held` is what it has now."""
        found = self._ledger.results(job_id)
        return [self._judged(one, held) for one in found]

    def piece(self, wanted: SendChunk) -> bytes | None:
        """Return a piece of a stored artifact, none where that is gone or cannot be read."""
        path = self._store.path_of(wanted.artifact_id)
        if path is None:
            kept = self._ledger.bundle(wanted.artifact_id)
            end = wanted.offset + wanted.length
            return None if kept is None else kept.data[wanted.offset : end]
        try:
            with self._disk.open(path, "rb") as file:
                file.seek(wanted.offset)
                data: bytes = file.read(wanted.length)
        except OSError as error:
            log.error("%s: %s", path, plain(error))
            return None
        return data

    def _judged(self, one: Result, held: str | None) -> Result:
        """Tell whether a result is there, and until when it is kept."""
        artifact_id = one.artifact_id or (held if one.set_aside_at is None else None)
        if artifact_id is None:
            return one
        there_bytes = self._store.size_bytes(artifact_id)
        if there_bytes is None:
            there_bytes = self._ledger.bundle_sizes().get(artifact_id)
        until = None
        if one.set_aside_at is not None and artifact_id != held:
            until = rfc3339((seconds_of(one.set_aside_at) or 0.0) + self._keep_results_s)
        return replace(
            one, artifact_id=artifact_id, kept_until=until, is_there=there_bytes is not None,
            size_bytes=one.size_bytes if there_bytes is None else there_bytes,
        )  # fmt: skip
