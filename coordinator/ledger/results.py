"""What attempts have brought, from the ledger's events: also what a requeue has set aside.

An event that brings a result names it. Those of ledgers before version 7 do not: what a requeue has
said of it then, or the store's index, tells which it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from coordinator.jobs.records import Result
from coordinator.jobs.set_aside import told_of
from coordinator.jobs.states import Event
from coordinator.ledger.database import Database

# find(job_id, attempt, start of the artifact's id or nothing) -> the artifact in the store, or none
Find = Callable[[str, int, str], str | None]

BRINGS: Final = (Event.COMPLETED, Event.KEPT)
_BROUGHT: Final = """
    SELECT job_id, attempt, artifact_id FROM events WHERE event IN ('completed', 'kept')
    UNION SELECT job_id, attempt, artifact_id FROM jobs WHERE artifact_id IS NOT NULL"""
_OLDEST: Final = "SELECT job_id, min(attempt) FROM events GROUP BY job_id"
_OF_JOB: Final = """
    SELECT event, attempt, at, host, who, why, artifact_id, size_bytes FROM events
    WHERE job_id = ? AND event IN ('completed', 'kept', 'requeued') ORDER BY seq"""
_SINCE: Final = """
    SELECT gone.job_id, gone.attempt, gone.why, (
        SELECT max(brought.artifact_id) FROM events AS brought WHERE brought.job_id = gone.job_id
        AND brought.attempt = gone.attempt AND brought.artifact_id IS NOT NULL)
    FROM events AS gone
    WHERE gone.at >= ? AND gone.event = 'requeued' AND gone.from_state IN ('completed', 'failed')"""


class Brought:
    """Which results attempts have brought: what rows of the store's index may tell of."""

    def __init__(
        self, rows: Iterable[tuple[str, int, str | None]], oldest: Mapping[str, int]
    ) -> None:
        """Each row is a job's id, an attempt, and the artifact, none where the event is old.

        `oldest` is the attempt of each job at which its history begins, 0 where that is whole.
        """
        self._rows, self._oldest = frozenset(rows), oldest

    def may_be(self, job_id: str, attempt: str, artifact_id: str) -> bool:
        """Whether an attempt (decimal) has brought an artifact, as far as the history tells."""
        if not attempt.isdecimal():
            return False
        if 0 < int(attempt) <= self._oldest.get(job_id, 0):
            return True
        return any((job_id, int(attempt), one) in self._rows for one in (artifact_id, None))


def brought(database: Database) -> Brought:
    """Return the results of every job."""
    return Brought(database.execute(_BROUGHT), dict(database.execute(_OLDEST)))


def of_job(database: Database, job_id: str, find: Find) -> list[Result]:
    """Return what the attempts of a job have brought, by attempt; each attempt is there once."""
    found: dict[int, Result] = {}
    for event, attempt, at, host, who, why, artifact_id, size_bytes in database.execute(
        _OF_JOB, (job_id,)
    ):
        if event in BRINGS:
            known = found.get(attempt)
            found[attempt] = Result(
                attempt,
                # A result that came late and was taken by a requeue came when it was kept.
                known.at if known else at,
                host or _host(who),
                artifact_id or (known.artifact_id if known else None),
                size_bytes if size_bytes is not None else (known.size_bytes if known else None),
            )
        elif attempt in found and found[attempt].set_aside_at is None:
            metric, start = told_of(why)
            one = found[attempt]
            found[attempt] = replace(
                one,
                artifact_id=one.artifact_id or find(job_id, attempt, start),
                metric=metric,
                set_aside_at=at,
            )
    return [found[attempt] for attempt in sorted(found)]


def set_aside_since(database: Database, at: str, find: Find) -> frozenset[str]:
    """Return the artifacts that were set aside at `at` (RFC 3339) or later."""
    rows: list[Any] = database.execute(_SINCE, (at,)).fetchall()
    told = (
        artifact_id or find(job_id, attempt, told_of(why)[1])
        for job_id, attempt, why, artifact_id in rows
    )
    return frozenset(artifact_id for artifact_id in told if artifact_id is not None)


def _host(who: str) -> str | None:
    role, _, name = who.partition(":")
    return name if role == "host" else None
