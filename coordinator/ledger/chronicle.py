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

SPAN: Final = 20_000  # rows that one page looks at, however few of them it wants
PAGE_BYTES: Final = 150_000

_FILTER: Final = """
    seq > :after AND seq <= :end AND (:since IS NULL OR at >= :since)
    AND (:job_id IS NULL OR job_id = :job_id)
    AND (:host IS NULL OR host = :host OR who = 'host:' || :host)
    AND (:who IS NULL OR :who <> '' AND :who IN (
        who, substr(who, 1, instr(who, ':') - 1), substr(who, instr(who, ':') + 1)))
    ORDER BY seq LIMIT :limit"""
_NAME: Final = "(SELECT name FROM jobs WHERE jobs.job_id = told.job_id)"
# Columns alike, so that the rows of both become the same fields. What moved a job is told once.
_EVENTS: Final = f"""
    SELECT seq, at, who, event, 'done', job_id, {_NAME}, host, attempt, from_state, to_state, why
    FROM events AS told WHERE {_FILTER}"""  # noqa: S608 - our own words; every value is bound
_ACTIONS: Final = f"""
    SELECT seq, at, who, action, outcome, job_id, {_NAME}, host, NULL, NULL, NULL, what
    FROM actions AS told
    WHERE NOT (outcome = 'done'
        AND (action IN ('cancel', 'requeue') OR action = 'run' AND what = '')) AND {_FILTER}"""  # noqa: S608 - likewise
_FIELDS: Final = (
    "at", "who", "event", "outcome", "job_id", "name", "host", "attempt", "from", "to", "why"
)  # fmt: skip
_TABLES: Final = (("events", _EVENTS), ("actions", _ACTIONS))
_INSERT: Final = (
    "INSERT INTO actions (at, who, client, request_id, action, job_id, host, outcome, what, answer)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ANSWERS: Final = (
    "SELECT client, request_id, at, answer FROM actions WHERE answer IS NOT NULL"
    " ORDER BY seq DESC LIMIT ?"
)
# What was done last with each host's certificate.
_CERTIFICATES: Final = """
    SELECT max(seq) FROM actions
    WHERE action IN ('enroll', 'revoke') AND outcome = 'done' AND host IS NOT NULL GROUP BY host"""
_REVOKED: Final = f"""
    SELECT host, at, who FROM actions WHERE action = 'revoke' AND seq IN ({_CERTIFICATES})"""  # noqa: S608 - our own words
_PRUNE: Final = f"""
    DELETE FROM actions WHERE (at < :older_than AND seq NOT IN (
        SELECT seq FROM actions WHERE answer IS NOT NULL ORDER BY seq DESC LIMIT :answers)
        AND seq NOT IN ({_CERTIFICATES})
    ) OR seq IN (
        SELECT seq FROM actions WHERE answer IS NULL ORDER BY seq DESC LIMIT -1 OFFSET :most)"""  # noqa: S608 - our own words; every value is bound


def record(database: Database, action: Action) -> None:
    """Append an action."""
    client, request_id = action.key or (None, None)
    answer = None if action.answer is None else action.answer.model_dump_json()
    database.execute(
        _INSERT,
        (action.at, action.who, client, request_id, action.action, action.job_id, action.host,
         action.outcome, action.what, answer),
    )  # fmt: skip


def prune(database: Database, older_than: str, answers: int, most_turned_away: int) -> int:
    """Delete what is older than `older_than` (RFC 3339), but for the newest so many `answers`.

    Of those who were turned away only the newest few stay, however new: so they push nobody out.
    Return how many were deleted.
    """
    values = {"older_than": older_than, "answers": answers, "most": most_turned_away}
    return database.execute(_PRUNE, values).rowcount


def answers(database: Database, limit: int) -> dict[RequestKey, tuple[str, OperatorResponse]]:
    """Return the newest answers to commands, oldest first: when, and what was said."""
    rows = database.execute(_ANSWERS, (limit,)).fetchall()
    return {
        (client, request_id): (at, _answer(answer.encode()))
        for client, request_id, at, answer in reversed(rows)
    }


def _answer(said: bytes) -> OperatorResponse:
    # Our own word, which may have grown too large to be heard; it is no reason not to start.
    return decode(OPERATOR_RESPONSE, said, limit_bytes=len(said))


def revoked(database: Database) -> dict[str, Revocation]:
    """Return the hosts of which the last that was done with their certificates was to revoke."""
    rows = database.execute(_REVOKED).fetchall()
    return {host: Revocation(at, who) for host, at, who in rows}


def page(database: Database, wanted: StoryFilter) -> dict[str, JsonValue]:
    """Return `events` (oldest first), `next` (a place) and whether there is `more`."""
    parts = [_part(database, *table, after, wanted) for table, after in zip(_TABLES, wanted.after)]
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


def _part(database: Database, table: str, query: str, after: int, wanted: StoryFilter) -> _Part:
    # Names of our own tables only.
    (newest,) = database.execute(f"SELECT coalesce(max(seq), 0) FROM {table}").fetchone()  # noqa: S608
    if wanted.since is not None:
        first = f"SELECT min(seq) FROM {table} WHERE at >= ?"  # noqa: S608
        (found,) = database.execute(first, (wanted.since,)).fetchone()
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
    rows = database.execute(query, values).fetchall()
    last = f"SELECT at FROM {table} WHERE seq <= ? ORDER BY seq DESC LIMIT 1"  # noqa: S608
    (ends_at,) = database.execute(last, (end,)).fetchone() or ("",)
    return _Part(rows, after, end, newest, ends_at)
