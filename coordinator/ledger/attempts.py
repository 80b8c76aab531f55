"""Attempts that have ended, from the ledger's events: what predictions and accounts are made of.

How long one took is what its agent has measured: how long the trainer ran. Where no report has
brought that (the agent is gone, or older than that is known), an attempt begins when its trainer
starts, or when its host turns out to be still at it, and ends with the next event that takes the
job from the host. So the hours of a host add up.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from pydantic import JsonValue

from coordinator.jobs.records import GOES_ON, AttemptFilter
from coordinator.jobs.states import Event
from coordinator.ledger.database import Database

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
# What was measured of an attempt that ended more than once (lost, and there again) is all of it: it
# is told with its last end alone, even where it came later still, with a result that is kept. Where
# nothing was, a result or a failure out of pending is late: its hours were told by that time.
# An attempt on a host that was at the job before may go on from what was kept there, and is not
# from the beginning for all that is known; after a requeue it is.
_PAGE: Final = f"""
    SELECT ended.seq, ended.at, ended.event, ended.from_state, ended.to_state, ended.job_id,
        ended.attempt, jobs.name, jobs.model, jobs.mode,
        json_extract(jobs.spec, '$.hyper.epochs'), coalesce(began.host, ended.host), began.at,
        (began.event = 'started' OR ended.ran_s IS NOT NULL) AND (
            SELECT substr(given.why, 1, length(:goes_on)) <> :goes_on FROM events AS given
            WHERE given.job_id = ended.job_id AND given.attempt = ended.attempt
            AND given.event = 'assigned') AND (
            ended.attempt = 1 OR NOT EXISTS (
                SELECT 1 FROM events AS tried WHERE tried.job_id = ended.job_id
                AND tried.attempt < ended.attempt AND tried.event = 'started'
                AND tried.host = coalesce(began.host, ended.host) AND NOT EXISTS (
                    SELECT 1 FROM events AS anew WHERE anew.job_id = ended.job_id
                    AND anew.event = 'requeued' AND anew.seq BETWEEN tried.seq AND ended.seq))),
        coalesce(ended.ran_s, (
            SELECT max(said.ran_s) FROM events AS said WHERE said.job_id = ended.job_id
            AND said.seq > ended.seq AND said.attempt = ended.attempt)),
        EXISTS (
            SELECT 1 FROM events AS after JOIN events AS said ON said.job_id = after.job_id
            AND said.seq >= after.seq AND said.attempt = after.attempt
            WHERE after.job_id = ended.job_id AND after.seq > ended.seq
            AND after.attempt = ended.attempt AND said.ran_s IS NOT NULL
            AND after.event IN (SELECT value FROM json_each(:ends)))
    FROM events AS ended JOIN jobs USING (job_id) LEFT JOIN events AS began ON began.seq = (
        SELECT max(seq) FROM events AS earlier WHERE earlier.job_id = ended.job_id
        AND earlier.seq < ended.seq AND earlier.attempt = ended.attempt
        AND earlier.event IN {_STARTS})
    WHERE ended.seq < :before AND ended.seq >= :first AND (:since IS NULL OR ended.at >= :since)
        AND ended.event IN (SELECT value FROM json_each(:events))
        AND (ended.from_state IN ('claimed', 'running')
            OR ended.event IN ('completed', 'failed', 'cancelled') OR ended.ran_s IS NOT NULL)
    ORDER BY ended.seq DESC LIMIT :limit"""  # noqa: S608 - our own words; every value is bound


def page(database: Database, wanted: AttemptFilter) -> dict[str, JsonValue]:
    """Return `attempts`, newest first, and in `next` where an older page begins, or none.

    `newest` is where the table of events ends: who asks for what came `after` it is told no attempt
    twice. An attempt has `at` (RFC 3339: when the coordinator knew of its end), `job_id`,
    `attempt`, `name`, `model`, `mode`, `epochs` (none where the job sets none), `host`, `end` (one
    of `ENDS`), `over` (the state in which the job is over, or none), `began` (RFC 3339: when its
    trainer started, or was last found to be at it; none where neither is known), `s` (how long it
    ran, none when it never did or is told elsewhere), and `whole`: it ran from the job's beginning
    to its end in one go.
    """
    (newest,) = database.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
    before = newest + 1 if wanted.before is None else min(wanted.before, newest + 1)
    oldest = wanted.after + 1
    first = max(oldest, before - SPAN)
    events = [event.value for event, end in ENDS.items() if not wanted.ends or end in wanted.ends]
    values = {
        "before": before,
        "first": first,
        "since": wanted.since,
        "events": _json_list(events),
        "ends": _json_list([event.value for event in ENDS]),
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
            return {"attempts": told, "next": reached, "newest": newest}
        told.append(attempt)
        reached = seq
    # Whatever is left of a span that was read to its end is not wanted.
    if len(rows) < wanted.limit:
        reached = first
    is_older = reached > oldest and not _is_past(database, wanted.since, reached)
    return {"attempts": told, "next": reached if is_older else None, "newest": newest}


def _attempt(row: list[Any]) -> dict[str, JsonValue]:
    (
        at, event, from_state, to_state, job_id, number, name, model, mode, epochs, host, began,
        whole, ran_s, elsewhere,
    ) = row  # fmt: skip
    held = from_state in {"claimed", "running"}
    is_whole = bool(whole) and (held or ran_s is not None)
    if elsewhere:
        ran_s = None
    elif ran_s is None and held:
        ran_s = _seconds(began, at)
    return {
        "at": at,
        "job_id": job_id,
        "attempt": number,
        "name": name,
        "model": model,
        "mode": mode,
        "epochs": epochs,
        "host": host if held or event != Event.CANCELLED else None,
        "end": ENDS[Event(event)],
        "over": to_state if to_state in {"completed", "failed", "cancelled"} else None,
        "began": began,
        "s": ran_s,
        "whole": is_whole,
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
