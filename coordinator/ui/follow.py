"""Follows one job to its end, for `fleet run --wait`."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final

import click

from broker.protocol.messages import AskShow, AskWhy
from broker.sentences import printable
from broker.system.machine import new_id
from coordinator.jobs.set_aside import BELOW_CHANCE, main_metric, metric_words
from coordinator.ui.job_board import Board, Row
from coordinator.ui.live import hear, until
from coordinator.ui.words import say, took

if TYPE_CHECKING:
    from coordinator.client.client import OperatorClient

FINAL: Final = frozenset({"completed", "failed", "cancelled"})
WHY_EVERY_S: Final = 10.0
MISSES: Final = 15  # questions without an answer, after which nobody is believed to be there
_NUMBER: Final = re.compile(r"\d+")
# What comes next when a job is over: the verb, and what that does.
_NEXT: Final = {
    "completed": ("get", "fetches it"),
    "failed": ("logs", "shows its output"),
    "cancelled": ("requeue", "brings it back"),
}


def until_over(
    client: OperatorClient, job_id: str, *, quiet: bool, fetches: bool = False
) -> Row:  # fmt: skip
    """Return a job's row when the job is over; the client watches rows and progress.

    It ends with what came of the job, and with the next step unless the result is fetched anyway
    (`fetches`). Ctrl-C ends the waiting, not the job, and raises `click.Abort`. Raises
    `Unreachable` when no coordinator answers for long.
    """
    row: Row = {}
    said = why = ""
    asked_s = 0.0

    def look() -> bool:
        nonlocal row, said, why, asked_s
        row = client.ask(AskShow(id=new_id(), job=job_id))
        if row["state"] in FINAL:
            return True
        board.show([row])
        if row["state"] == "pending" and time.monotonic() - asked_s >= WHY_EVERY_S:
            asked_s = time.monotonic()
            why = _waits(client, row)
            gist = _NUMBER.sub("", why)  # of a count of seconds every word would be news
            if gist not in {"", said}:
                board.say(why if said else f"{why}\nCtrl-C stops waiting, the job stays")
                said = gist
        return False

    with Board(quiet=quiet) as board:
        is_over = until(look, lambda: hear(client), board.say, misses=MISSES)
    if not is_over:
        say("no longer waiting; the job stays", err=True)
        raise click.Abort
    if not quiet:
        if row["state"] == "failed":
            say(printable(f"error: {row['error']}"), err=True)
        say(outcome(row, fetches=fetches))
    return row


def outcome(row: Row, *, fetches: bool = False) -> str:
    """Return in a line what came of a job that is over, and what comes next."""
    on = f" on {row['host']}" if row.get("host") else ""
    ran = f"trained for {said}" if (said := took(row)) else ""
    chance = BELOW_CHANCE if row.get("below_chance") else ""
    facts = ", ".join(filter(None, (ran, metric_words(row["metrics"]), chance)))
    line = f"{row['name']} {row['state']}{on}{': ' if facts else ''}{facts}"
    if not (fetches and row["state"] == "completed"):
        line += f"; `{_next(row)}` {_NEXT[row['state']][1]}"
    return printable(line)


def in_fields(row: Row) -> Row:
    """Return a row with what `outcome` says beyond it: `score`, `next`."""
    name = main_metric(row["metrics"])
    score = None if name is None else {"name": name, "value": row["metrics"][name]}
    return row | {"score": score, "next": _next(row)}


def _next(row: Row) -> str:
    return f"fleet {_NEXT[row['state']][0]} {row['name']}"


def _waits(client: OperatorClient, row: dict[str, Any]) -> str:
    """Return in a line why a job is pending; nothing where it is about to be assigned."""
    why = client.ask(AskWhy(id=new_id(), job=row["job_id"]))
    hosts = why["hosts"]
    if why["state"] != "pending" or any(host["eligible"] for host in hosts):
        return ""
    alike = {tuple(host["reasons"]) for host in hosts}
    if why["summary"] in {reason for reasons in alike for reason in reasons}:
        return f"it waits: {why['summary']}"
    if len(alike) == 1 and why["known"] == len(hosts):
        return f"it waits: {why['summary']}: {'; '.join(*alike)}"
    return f"it waits: {why['summary']}; `fleet why {row['name']}` has the reasons"
