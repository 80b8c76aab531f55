"""Attempts that have ended, from the ledger's events: what predictions and accounts are made of.

An attempt begins when its trainer starts, or when its host turns out to be still at it, and ends
with the next event that takes the job from the host. So the hours of a host add up.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from pydantic import JsonValue

from coordinator.database import Database
from coordinator.records import GOES_ON, AttemptFilter
from coordinator.states import Event

SPAN: Final = 20_000  # events that one page looks at, however few of them it wants
PAGE_CHARS: Final = 150_000

# event -> how an attempt that it ends has ended
ENDS: Final[dict[Event, str]] = {
    Event.COMPLETED: "completed",
    Event.FAILED: "failed",
    Event.RETRIED: "failed",
    Event.LOST: "lost",
    Event.EXHAUSTED: "lost",
    Event.RELEASED: "released",
    Event.CANCELLED: "cancelled",
    Event.REQUEUED: "cancelled",
}
_STARTS: Final = "('started', 'resumed')"
# Out of pending, a result or a failure comes late: its hours were told when the job was taken back.
_PAGE: Final = f"""
    SELECT ended.seq, ended.at, ended.event, ended.from_state, ended.to_state, jobs.name,
        jobs.model, jobs.mode, coalesce(began.host, ended.host), began.at,
        began.event = 'started' AND NOT EXISTS (
            SELECT 1 FROM events AS given WHERE given.job_id = ended.job_id
            AND given.attempt = ended.attempt AND given.event = 'assigned'
            AND substr(given.why, 1, length(:goes_on)) = :goes_on)
    FROM events AS ended JOIN jobs USING (job_id) LEFT JOIN events AS began ON began.seq = (
        SELECT max(seq) FROM events AS earlier WHERE earlier.job_id = ended.job_id
        AND earlier.seq < ended.seq AND earlier.attempt = ended.attempt
        AND earlier.event IN {_STARTS})
    WHERE ended.seq < :before AND ended.seq >= :first AND (:since IS NULL OR ended.at >= :since)
        AND ended.event IN (SELECT value FROM json_each(:events))
        AND (ended.from_state IN ('claimed', 'running')
            OR ended.event IN ('completed', 'failed', 'cancelled'))
    ORDER BY ended.seq DESC LIMIT :limit"""  # noqa: S608 - our own words; every value is bound


def page(database: Database, wanted: AttemptFilter) -> dict[str, JsonValue]:
    """Return `attempts`, newest first, and in `next` where an older page begins, or none.

    An attempt has `at` (RFC 3339), `name`, `model`, `mode`, `host`, `end` (one of `ENDS`), `over`
    (the state in which the job is over, or none), `s` (how long it ran, none when it never did or
    is told elsewhere), and `whole`: it ran from the job's beginning to its end in one go.
    """
    (newest,) = database.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
    before = newest + 1 if wanted.before is None else min(wanted.before, newest + 1)
    first = max(1, before - SPAN)
    events = [event.value for event, end in ENDS.items() if not wanted.ends or end in wanted.ends]
    values = {
        "before": before,
        "first": first,
        "since": wanted.since,
        "events": _json_list(events),
        "goes_on": GOES_ON,
        "limit": wanted.limit,
    }
    rows = database.execute(_PAGE, values).fetchall()
    told: list[JsonValue] = []
    size_chars = 0
    reached = before
    for seq, *row in rows:
        attempt = _attempt(row)
        size_chars += len(str(attempt))
        if told and size_chars > PAGE_CHARS:
            return {"attempts": told, "next": reached}
        told.append(attempt)
        reached = seq
    # Whatever is left of a span that was read to its end is not wanted.
    if len(rows) < wanted.limit:
        reached = first
    is_older = reached > 1 and not _is_past(database, wanted.since, reached)
    return {"attempts": told, "next": reached if is_older else None}


def _attempt(row: list[Any]) -> dict[str, JsonValue]:
    at, event, from_state, to_state, name, model, mode, host, began, whole = row
    held = from_state in {"claimed", "running"}
    return {
        "at": at,
        "name": name,
        "model": model,
        "mode": mode,
        "host": host if held or event != Event.CANCELLED else None,
        "end": ENDS[Event(event)],
        "over": to_state if to_state in {"completed", "failed", "cancelled"} else None,
        "s": _seconds(began, at) if held else None,
        "whole": bool(whole) and held,
    }


def _seconds(began: str | None, ended: str) -> float | None:
    if began is None:
        return None
    took = datetime.fromisoformat(ended) - datetime.fromisoformat(began)
    return max(0.0, round(took.total_seconds(), 3))


def _is_past(database: Database, since: str | None, seq: int) -> bool:
    """Whether all that stands before `seq` is older than what is wanted.

    A clock that was set back leaves a few that are not: their rows are passed over with the rest.
    """
    if since is None:
        return False
    query = "SELECT at FROM events WHERE seq < ? ORDER BY seq DESC LIMIT 1"
    found = database.execute(query, (seq,)).fetchone()
    return found is None or found[0] < since


def _json_list(words: list[str]) -> str:
    return "[" + ",".join(f'"{word}"' for word in words) + "]"
