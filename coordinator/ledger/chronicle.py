"""The ledger's story: what happened to jobs, and what operators did, as one list.

Two tables are read side by side, each in the order of its rows, and put together by their times. A
page of the list ends at a place in each table, which the next page goes on from; so nothing is told
twice or left out, whichever way the clock has jumped.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import JsonValue

from broker.protocol.messages import OPERATOR_RESPONSE, OperatorResponse, decode
from coordinator.jobs.records import Action, RequestKey, Revocation, StoryFilter
from coordinator.ledger.database import Database
from coordinator.ledger.statements import sql

SPAN: Final = 20_000  # rows that one page looks at, however few of them it wants
PAGE_BYTES: Final = 150_000

_FIELDS: Final = (
    "at", "who", "event", "outcome", "job_id", "name", "host", "attempt", "from", "to", "why"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Table:
    """The statements that read one of the two tables."""

    rows: str
    newest: str
    first_since: str
    time_up_to: str


_TABLES: Final = (
    _Table("story_of_events", "newest_event", "first_event_since", "event_time_up_to"),
    _Table("story_of_actions", "newest_action", "first_action_since", "action_time_up_to"),
)


def record(database: Database, action: Action) -> None:
    """Append an action."""
    client, request_id = action.key or (None, None)
    answer = None if action.answer is None else action.answer.model_dump_json()
    database.execute(
        sql("insert_action"),
        (action.at, action.who, client, request_id, action.action, action.job_id, action.host,
         action.outcome, action.what, answer),
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


def revoked(database: Database) -> dict[str, Revocation]:
    """Return the hosts of which the last that was done with their certificates was to revoke."""
    rows = database.execute(sql("revoked_hosts")).fetchall()
    return {host: Revocation(at, who) for host, at, who in rows}


def page(database: Database, wanted: StoryFilter) -> dict[str, JsonValue]:
    """Return `events` (oldest first), `next` (a place) and whether there is `more`."""
    parts = [_part(database, table, after, wanted) for table, after in zip(_TABLES, wanted.after)]
    # Of tables that are not read to their ends yet, the one that is behind holds the other up.
    behind = min((part for part in parts if part.more), key=lambda part: part.ends_at, default=None)
    told: list[JsonValue] = []
    size_bytes = 0
    for part, (seq, *row) in heapq.merge(*(part.told() for part in parts), key=_place):
        fields = dict(zip(_FIELDS, row, strict=True))
        size_bytes += len(json.dumps(fields))
        if told and (size_bytes > PAGE_BYTES or len(told) >= wanted.limit):
            break
        ahead = behind is not None and part is not behind and row[0] > behind.ends_at
        if part.is_held_up or ahead:
            part.is_held_up = True
            continue
        told.append(fields)
        part.taken += 1
        part.reached = seq
    for part in parts:
        if part.taken == len(part.rows) < wanted.limit:
            part.reached = part.end
    return {
        "events": told,
        "next": [part.reached for part in parts],
        "more": any(part.reached < part.newest for part in parts),
    }


@dataclass(slots=True)
class _Part:
    """What one page may tell of one table: the rows that fit, after `reached` and up to `end`."""

    rows: list[tuple[Any, ...]]
    reached: int
    end: int
    newest: int
    ends_at: str
    taken: int = 0
    is_held_up: bool = False

    @property
    def more(self) -> bool:
        return self.end < self.newest

    def told(self) -> Iterator[tuple[_Part, tuple[Any, ...]]]:
        return ((self, row) for row in self.rows)


def _place(one: tuple[_Part, tuple[Any, ...]]) -> tuple[str, bool]:
    """Return what to sort by: the time, and of the same time a reload before what came of it."""
    _seq, at, _who, event, outcome, *_rest = one[1]
    return str(at), (event, outcome) != ("reload", "done")


def _part(database: Database, table: _Table, after: int, wanted: StoryFilter) -> _Part:
    (newest,) = database.execute(sql(table.newest)).fetchone()
    if wanted.since is not None:
        (found,) = database.execute(sql(table.first_since), (wanted.since,)).fetchone()
        after = newest if found is None else max(after, found - 1)
    end = min(after + SPAN, newest)
    values = {
        "after": after,
        "end": end,
        "since": wanted.since,
        "job_id": wanted.job_id,
        "host": wanted.host,
        "who": wanted.who,
        "limit": wanted.limit,
    }
    rows = database.execute(sql(table.rows), values).fetchall()
    (ends_at,) = database.execute(sql(table.time_up_to), (end,)).fetchone() or ("",)
    return _Part(rows, after, end, newest, ends_at)
