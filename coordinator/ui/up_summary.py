"""What `fleet up --until-idle` leaves over: which jobs, why, and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from broker.protocol.messages import AskStatus, AskWhy
from broker.system.machine import new_id

if TYPE_CHECKING:
    from coordinator.client.client import OperatorClient

MOST: Final = 100  # jobs that are asked about at the end
MOST_ASKED: Final = 10  # and while nothing runs
MOST_HELPS: Final = 8
_NAMED: Final = 3
_ELSEWHERE: Final = (
    "have them trained elsewhere: a fleet of several machines takes them "
    '(README.md, "A fleet of several machines")'
)


@dataclass(frozen=True, slots=True)
class LeftOver:
    """A job that nobody here can run: what is against it, and what would help."""

    row: dict[str, Any]
    reasons: tuple[str, ...]
    helps: tuple[str, ...]


def ask(client: OperatorClient, rows: Sequence[dict[str, Any]]) -> list[LeftOver]:
    """Return the jobs of these rows that wait, of many the first."""
    waiting = [row for row in rows if row["state"] == "pending"]
    return [_of(client, row) for row in waiting[:MOST]]


def _of(client: OperatorClient, row: dict[str, Any]) -> LeftOver:
    why = client.ask(AskWhy(id=new_id(), job=row["job_id"]))
    reasons = {reason for host in why["hosts"] for reason in host["reasons"]}
    return LeftOver(row, tuple(sorted(reasons)) or (why["summary"],), tuple(why["remedies"]))


def held_up(client: OperatorClient, rows: Sequence[dict[str, Any]]) -> str:
    """Return why the first job waits that could run in time; empty where one is about to start."""
    waiting = [row for row in rows if row["state"] == "pending"]
    for row in waiting[:MOST_ASKED]:
        why = client.ask(AskWhy(id=new_id(), job=row["job_id"]))
        if not why["suitable"]:
            continue
        if "now" in why["suitable"]:
            return ""
        names = {name for names in why["suitable"].values() for name in names}
        found = {one for host in why["hosts"] if host["host"] in names for one in host["reasons"]}
        return f"{row['name']:<26} waits: {'; '.join(sorted(found))}"
    return ""


def to_list(rows: Sequence[dict[str, Any]], left: Sequence[LeftOver]) -> list[dict[str, Any]]:
    """Return the rows for scripts: those of `left` say why they wait, and what would help."""
    by_id = {one.row["job_id"]: one for one in left}
    return [
        row | {"waits": [*one.reasons], "would_help": [*one.helps]}
        if (one := by_id.get(row["job_id"]))
        else row
        for row in rows
    ]


def in_words(client: OperatorClient, left: Sequence[LeftOver], count: int) -> Iterator[str]:
    """Yield lines about `count` jobs that wait, of which `left` are known better."""
    paused = client.ask(AskStatus(id=new_id()))["paused"]
    never = all(one.row.get("unplaceable", True) for one in left)
    since = "no host here can run them" if never else "no host here takes them now"
    yield f"Left over ({count}), since {paused or since}:"
    for one in left:
        yield f"  {one.row['name']:<26} {'; '.join(one.reasons)}"
    if count > len(left):
        yield f"  and {count - len(left)} more"
    if paused:
        return
    yield "What would help:"
    helps = _helps(left)
    for text, names in [*helps.items()][:MOST_HELPS]:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield f"  {', '.join(names[:_NAMED])}{more}: {text}"
    if len(helps) > MOST_HELPS:
        yield f"  and {len(helps) - MOST_HELPS} more changes"
    yield f"  {'or ' if helps else ''}{_ELSEWHERE}"


def _helps(left: Sequence[LeftOver]) -> dict[str, list[str]]:
    """Return what would help, with the names of the jobs that it would help."""
    found: dict[str, list[str]] = {}
    for one in left:
        for text in one.helps:
            found.setdefault(text, []).append(one.row["name"])
    return found
