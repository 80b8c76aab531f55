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
from coordinator.ledger.statements import sql

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
    (newest,) = database.execute(sql("newest_event")).fetchone()
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
    rows = database.execute(sql("ended_attempts"), values).fetchall()
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
    found = database.execute(sql("event_time_before"), (seq,)).fetchone()
    return found is None or found[0] < since


def _json_list(words: list[str]) -> str:
    return "[" + ",".join(f'"{word}"' for word in words) + "]"
