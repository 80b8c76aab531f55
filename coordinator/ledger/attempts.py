"""Ended attempts and their results, from the ledger's events.

The duration of an attempt is what its agent has measured. Where no report has brought that, it
begins when its trainer starts, or when its host is found to be still at it, and ends with the next
event that takes the job from the host. So the hours of a host add up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from pydantic import JsonValue

from broker.clock import rfc3339
from broker.protocol.messages import LEAD, AskAttempts
from coordinator.jobs.records import Result
from coordinator.jobs.states import Event
from coordinator.ledger.database import Database, sql

PAGE_CHARS: Final = 150_000
BRINGS: Final = (Event.COMPLETED, Event.KEPT)

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


def page(database: Database, wanted: AskAttempts) -> dict[str, JsonValue]:
    """Return `attempts`, newest first, and in `next` where an older page begins, or none.

    `newest` is where the table of events ends: who asks for what came `after` it is told no attempt
    twice. An attempt has `at` (RFC 3339: when the coordinator knew of its end), `job_id`,
    `attempt`, `name`, `model`, `mode`, `epochs` (none where the job sets none), `host`, `end` (one
    of `ENDS`), `over` (the state in which the job is over, or none), `began` (RFC 3339: when its
    trainer started, or was last found to be at it; none where neither is known), `s` (how long it
    ran, none when it never did or is told elsewhere), and `whole`: it ran from the job's beginning
    to its end in one go. `LEAD` are there where they are known.
    """
    (newest,) = database.execute(sql("newest_event")).fetchone()
    events = [event.value for event, end in ENDS.items() if not wanted.ends or end in wanted.ends]
    values = {
        "before": newest + 1 if wanted.before is None else wanted.before,
        "after": wanted.after,
        "since": None if wanted.since is None else rfc3339(wanted.since),
        "events": json.dumps(events),
        "ends": json.dumps([event.value for event in ENDS]),
        "limit": wanted.limit + 1,  # one more: whether there is an older page
    }
    told: list[JsonValue] = []
    size_chars = 0
    reached = 0
    for row in database.execute(sql("ended_attempts"), values):
        attempt = _attempt(row)
        size_chars += len(str(attempt))
        if told and (size_chars > PAGE_CHARS or len(told) >= wanted.limit):
            return {"attempts": told, "next": reached, "newest": newest}
        told.append(attempt)
        reached = row["seq"]
    return {"attempts": told, "next": None, "newest": newest}


def _attempt(row: Mapping[str, Any]) -> dict[str, JsonValue]:
    held, ran_s = row["from_state"] in {"claimed", "running"}, row["ran_s"]
    is_whole = bool(row["whole"]) and (held or ran_s is not None)
    if row["elsewhere"]:
        ran_s = None
    elif ran_s is None and held:
        ran_s = _seconds(row["began"], row["at"])
    lead = json.loads(row["lead"] or "{}")
    is_over = row["to_state"] in {"completed", "failed", "cancelled"}
    keys = ("at", "job_id", "attempt", "name", "model", "mode", "epochs", "began")
    return {
        **{key: row[key] for key in keys},
        "host": row["host"] if held or row["event"] != Event.CANCELLED else None,
        "end": ENDS[Event(row["event"])],
        "over": row["to_state"] if is_over else None,
        "s": ran_s,
        "whole": is_whole,
        **{key: lead[key] for key in LEAD if key in lead},
    }


def _seconds(began: str | None, ended: str) -> float | None:
    if began is None:
        return None
    took = datetime.fromisoformat(ended) - datetime.fromisoformat(began)
    return max(0.0, round(took.total_seconds(), 3))


def results(database: Database, job_id: str) -> list[Result]:
    """Return the results of a job's attempts, also those that a requeue has set aside."""
    found: dict[int, Result] = {}
    for event, attempt, at, host, who, why, artifact_id, size_bytes in database.execute(
        sql("results_of_job"), (job_id,)
    ):
        if event in BRINGS:
            known = found.get(attempt)
            # A result that came late and was taken by a requeue came when it was kept.
            came_at = known.at if known else at
            role, _, name = who.partition(":")
            by = host or (name if role == "host" else None)
            found[attempt] = Result(attempt, came_at, by, artifact_id, size_bytes)
        elif attempt in found and found[attempt].set_aside_at is None:
            metrics = json.loads(why).get("metrics", {})
            found[attempt] = replace(found[attempt], metrics=metrics, set_aside_at=at)
    return [found[attempt] for attempt in sorted(found)]
