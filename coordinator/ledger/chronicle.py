"""The ledger's story: what happened to jobs, and what operators did, as one list.

Two tables are read side by side, each in the order of its rows, and merged by time. A page ends at
a place in each table, where the next page begins: so nothing is told twice or left out, whichever
way the clock has jumped.
"""

from __future__ import annotations

import heapq
import json
from typing import Any, Final

from pydantic import JsonValue

from broker.clock import rfc3339
from broker.protocol.messages import OPERATOR_RESPONSE, AskEvents, OperatorResponse, decode
from coordinator.jobs.records import Action, RequestKey
from coordinator.ledger.database import Database, sql

PAGE_BYTES: Final = 150_000

# For each table: the statement that reads it, and the one that tells where it ends.
_TABLES: Final = (("story_of_events", "newest_event"), ("story_of_actions", "newest_action"))


def record(database: Database, action: Action) -> None:
    """Append an action."""
    client, request_id = action.key or (None, None)
    answer = None if action.answer is None else action.answer.model_dump_json()
    database.execute(
        sql("insert_action"),
        (action.at, action.who, client, request_id, action.action, action.job_id, action.host,
         action.outcome, json.dumps(action.what), answer),
    )  # fmt: skip


def prune(database: Database, older_than: str, answers: int, most_turned_away: int) -> int:
    """Delete what is older than `older_than` (RFC 3339), but for the newest so many `answers`.

    Of those who were turned away only the newest few stay, however new: so they push nobody out.
    Return how many were deleted.
    """
    values = {"older_than": older_than, "answers": answers, "most": most_turned_away}
    return database.execute(sql("prune_actions"), values).rowcount


def answers(database: Database, limit: int) -> dict[RequestKey, tuple[str, OperatorResponse]]:
    """Return the newest answers to commands, oldest first: when, and what was said."""
    rows = database.execute(sql("newest_answers"), (limit,)).fetchall()
    return {
        (client, request_id): (at, _answer(answer.encode()))
        for client, request_id, at, answer in reversed(rows)
    }


def _answer(said: bytes) -> OperatorResponse:
    # Our own word, which may have grown too large to be heard; it is no reason not to start.
    return decode(OPERATOR_RESPONSE, said, limit_bytes=len(said))


def page(database: Database, wanted: AskEvents, job_id: str | None) -> dict[str, JsonValue]:
    """Return `events` (oldest first), `next` (a place) and whether there is `more`.

    `job_id`: those of this job alone.
    """
    values = {
        "since": None if wanted.since is None else rfc3339(wanted.since),
        "job_id": job_id,
        "host": wanted.host,
        "who": wanted.who,
        "limit": wanted.limit + 1,  # one more: whether there is more
    }
    ends = [database.execute(sql(newest)).fetchone()[0] for _, newest in _TABLES]
    tables = [
        [(table, row) for row in database.execute(sql(statement), {**values, "after": after})]
        for table, ((statement, _), after) in enumerate(zip(_TABLES, wanted.after))
    ]
    reached = [*wanted.after]
    told: list[JsonValue] = []
    size_bytes = 0
    for table, row in heapq.merge(*tables, key=_moment):
        fields = dict(row)
        seq = fields.pop("seq")
        fields["why"] = json.loads(fields["why"])
        size_bytes += len(json.dumps(fields))
        if told and (size_bytes > PAGE_BYTES or len(told) >= wanted.limit):
            return {"events": told, "next": list(reached), "more": True}
        told.append(fields)
        reached[table] = seq
    return {"events": told, "next": list(ends), "more": False}


def _moment(one: tuple[int, Any]) -> tuple[str, bool]:
    """Return what to sort by: the time, and of the same time a reload before what came of it."""
    _table, row = one
    return row["at"], (row["event"], row["outcome"]) != ("reload", "done")
