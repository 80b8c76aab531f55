"""What operators ask that the core does not know: it is in the ledger, the store, or a log."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, Final

from pydantic import JsonValue
from pydantic_core import to_json

from broker.clock import rfc3339
from broker.errors import plain
from broker.system.files import RealDisk
from coordinator.core.effects import (
    AnswerWithAttempts,
    AnswerWithCurves,
    AnswerWithEvents,
    AnswerWithLog,
    AnswerWithStory,
    SendChunk,
)
from coordinator.jobs.curve import in_fields
from coordinator.jobs.records import Result
from coordinator.ledger.ledger import Ledger
from coordinator.store.joblog import JobLogs
from coordinator.store.store import Store

log = logging.getLogger("fleet.coordinator")

EVENTS_BYTES: Final = 80_000  # of a job's history in one answer, beside the job itself

Asked = AnswerWithEvents | AnswerWithLog | AnswerWithCurves | AnswerWithStory | AnswerWithAttempts


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

    def data(self, question: Asked) -> dict[str, JsonValue]:
        """Return what the answer holds."""
        match question:
            case AnswerWithEvents():
                held: Any = question.data["artifact_id"]
                return {
                    **question.data,
                    "events": _newest(self._ledger.events(question.job_id)),
                    "results": [asdict(one) for one in self.results(question.job_id, held)],
                    "keep_results_s": self._keep_results_s,
                }
            case AnswerWithStory():
                return self._ledger.story(question.wanted)
            case AnswerWithAttempts():
                return self._ledger.attempts(question.wanted)
            case AnswerWithLog():
                return self._log(question)
            case AnswerWithCurves():
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

    def _log(self, question: AnswerWithLog) -> dict[str, JsonValue]:
        tail = self._logs.tail(question.job_id, question.attempt, question.lines)
        return {
            "job_id": question.job_id,
            "name": question.name,
            "others": question.others,
            "attempt": question.attempt,
            "lines": [*tail.lines],
            "times": [*tail.times],
            "last": tail.last,
            "truncated": tail.truncated,
        }

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
            until_s = datetime.fromisoformat(one.set_aside_at).timestamp()
            until = rfc3339(until_s + self._keep_results_s)
        return replace(
            one, artifact_id=artifact_id, kept_until=until, is_there=there_bytes is not None,
            size_bytes=one.size_bytes if there_bytes is None else there_bytes,
        )  # fmt: skip


def _newest(events: Iterable[dict[str, JsonValue]]) -> list[JsonValue]:
    """Return the newest events that an answer bears, of those that come oldest first."""
    kept: list[JsonValue] = []
    size_bytes = 0
    for event in reversed([*events]):
        size_bytes += len(to_json(event))
        if kept and size_bytes > EVENTS_BYTES:
            break
        kept.append(event)
    return kept[::-1]
