"""The results of attempts, from the ledger's events, also those that a requeue has set aside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from coordinator.jobs.records import Result
from coordinator.jobs.set_aside import told_metric
from coordinator.jobs.states import Event
from coordinator.ledger.database import Database
from coordinator.ledger.statements import sql

BRINGS: Final = (Event.COMPLETED, Event.KEPT)


class Brought:
    """Which results attempts have brought: what rows of the store's index may tell of."""

    def __init__(self, rows: Iterable[tuple[str, int, str]], oldest: Mapping[str, int]) -> None:
        """Each row is a job's id, an attempt, and the artifact.

        `oldest` is the attempt of each job at which its history begins, 0 where that is whole.
        """
        self._rows, self._oldest = frozenset(rows), oldest

    def may_be(self, job_id: str, attempt: str, artifact_id: str) -> bool:
        """Whether an attempt (decimal) has brought an artifact, as far as the history tells."""
        if not attempt.isdecimal():
            return False
        if 0 < int(attempt) <= self._oldest.get(job_id, 0):
            return True
        return (job_id, int(attempt), artifact_id) in self._rows


def brought(database: Database) -> Brought:
    """Return the results of every job."""
    return Brought(
        database.execute(sql("all_results")), dict(database.execute(sql("oldest_attempts")))
    )


def of_job(database: Database, job_id: str) -> list[Result]:
    """Return what the attempts of a job have brought, by attempt; each attempt is there once."""
    found: dict[int, Result] = {}
    for event, attempt, at, host, who, why, artifact_id, size_bytes in database.execute(
        sql("results_of_job"), (job_id,)
    ):
        if event in BRINGS:
            known = found.get(attempt)
            found[attempt] = Result(
                attempt,
                # A result that came late and was taken by a requeue came when it was kept.
                known.at if known else at,
                host or _host(who),
                artifact_id,
                size_bytes,
            )
        elif attempt in found and found[attempt].set_aside_at is None:
            found[attempt] = replace(found[attempt], metric=told_metric(why), set_aside_at=at)
    return [found[attempt] for attempt in sorted(found)]


def set_aside_since(database: Database, at: str) -> frozenset[str]:
    """Return the artifacts that were set aside at `at` (RFC 3339) or later."""
    rows = database.execute(sql("set_aside_since"), (at,))
    return frozenset(artifact_id for (artifact_id,) in rows if artifact_id is not None)


def _host(who: str) -> str | None:
    role, _, name = who.partition(":")
    return name if role == "host" else None
