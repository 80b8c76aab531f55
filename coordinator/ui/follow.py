"""Jobs while they are waited for: one for `fleet run --wait`, all of them for `fleet up`.

On a terminal there is a live table, elsewhere a line for each change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

import click
from rich.live import Live

from broker.protocol.messages import AskShow, AskWhy
from broker.system.machine import new_id
from broker.wrapping import printable
from coordinator.client.rows import listed
from coordinator.jobs.job_progress import rest_words
from coordinator.jobs.reason_words import alike, names, summary
from coordinator.jobs.result_words import main_metric, metric_words, short_marks
from coordinator.jobs.states import FINAL
from coordinator.ui import terminal
from coordinator.ui.fitted_table import Table
from coordinator.ui.fleet_columns import JOBS, left_s, loss, shown, took
from coordinator.ui.live import hear, until
from coordinator.ui.options import OperatorClient
from coordinator.ui.words import say

Row = dict[str, Any]  # as the coordinator has told, or of a table
MAX_ROWS: Final = 60
OTHER_ROWS: Final = 5  # of the window: title, line, caption, and where the cursor stands
TELL_EVERY_S: Final = 20.0  # how far a job is, where no table is seen
_ORDER: Final = ("running", "claimed", "failed", "pending", "completed", "cancelled")
_UNTOLD: Final = frozenset({"claimed"})  # it runs in a moment
_NOT_SHOWN: Final = ("attempt", "priority", "started", "finished", "artifact", "id")
WHY_EVERY_S: Final = 10.0
MISSES: Final = 15  # questions without an answer, after which nobody is believed to be there
# What comes next when a job is over: the verb, and what that does.
_NEXT: Final = {
    "completed": ("get", "fetches it"),
    "failed": ("logs", "shows its output"),
    "cancelled": ("requeue", "brings it back"),
}


class Board:
    """What is seen of some jobs. A table is on standard error; lines are too, if `aside`."""

    def __init__(
        self, *, quiet: bool = False, aside: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """Show nothing yet; nothing at all if `quiet`."""
        self._console = terminal.console(stderr=True)
        self._quiet = quiet
        self._aside = aside
        self._clock = clock
        self._said: dict[str, str] = {}
        self._told_s: dict[str, float] = {}
        self._live: Live | None = None
        if self._console.is_terminal and not quiet:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)

    @property
    def is_live(self) -> bool:
        """Whether there is a table, so that no change need be told."""
        return self._live is not None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, told: Sequence[dict[str, Any]], caption: str = "") -> None:
        """Show how the jobs are now, as the coordinator has told."""
        rows = [listed(row, time.time()) for row in told]
        if self._live:
            room = max(1, min(MAX_ROWS, self._console.height - OTHER_ROWS))
            self._live.update(live_table(rows, caption, room), refresh=True)
        elif not self._quiet:
            for row in rows:
                self._tell(row)

    def say(self, text: str) -> None:
        """Say something above the table, or on standard error."""
        if self._live:
            self._live.console.print(terminal.Line(text, indent=0))
        elif not self._quiet:
            say(terminal.printable(text), err=True)

    def _tell(self, row: Row) -> None:
        where = f" on {row['host']}" if row["host"] else ""
        state = printable(f"{row['name']} {row['state']}{where}")
        job_id, now_s = row["id"], self._clock()
        if state != self._said.get(job_id, f"{row['name']} pending"):
            self._told_s[job_id] = now_s
            if row["state"] not in _UNTOLD:
                say(state, err=self._aside)
        elif now_s - self._told_s.get(job_id, now_s) >= TELL_EVERY_S:
            self._told_s[job_id] = now_s
            if words := _how_far(row):
                say(f"{state}: {words}", err=self._aside)
        self._said[job_id] = state


def live_table(rows: Sequence[Row], caption: str, room: int) -> Table:
    """Return the jobs with their progress, at most `room` of them: those that run come first."""
    shown_rows = rows
    if len(rows) > room:
        shown_rows = sorted(rows, key=lambda row: _ORDER.index(row["state"]))[:room]
    made = terminal.fleet_table(shown(JOBS, "list", *_NOT_SHOWN), shown_rows, bars=True)
    more = f", {len(rows) - room} more jobs not shown" if len(rows) > room else ""
    made.caption = f"{caption}{more}"
    return made


def _how_far(row: Row) -> str:
    """Return how far a trainer is, by its own word; nothing where it has named no epochs."""
    if row["state"] != "running" or "/" not in row["epoch"]:
        return ""
    said = [f"{row['share']:.0%}, epoch {row['epoch']}"]
    said += [f"loss {said_loss}"] if (said_loss := loss(row["loss"])) else []
    said += [] if row["away"] else filter(None, [rest_words(left_s(row))])
    return ", ".join(said)


def until_over(
    client: OperatorClient, job_id: str, *, quiet: bool, fetches: bool = False
) -> Row:  # fmt: skip
    """Return a job's row when the job is over; the client watches rows and progress.

    It ends with what came of the job, and with the next step unless the result is fetched anyway
    (`fetches`). Ctrl-C ends the waiting, not the job, and raises `click.Abort`. Raises
    `Unreachable` when no coordinator answers for long.
    """
    row: Row = {}
    said: object = None
    asked_s = 0.0

    def look() -> bool:
        nonlocal row, said, asked_s
        row = client.ask(AskShow(id=new_id(), job=job_id))
        if row["state"] in FINAL:
            return True
        board.show([row])
        if row["state"] == "pending" and time.monotonic() - asked_s >= WHY_EVERY_S:
            asked_s = time.monotonic()
            why, text = why_pending(client, row)
            if text and why != said:
                board.say(text if said else f"{text}\nCtrl-C stops waiting, the job stays")
                said = why
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
    ran = f"trained for {said}" if (said := took(listed(row, time.time()))) else ""
    marks = short_marks(row.get("marks") or ())
    facts = ", ".join(filter(None, (ran, metric_words(row["metrics"]), marks)))
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


def why_pending(client: OperatorClient, row: dict[str, Any]) -> tuple[object, str]:
    """Return why a job is pending, without its figures, and in a line; which may be none."""
    why = client.ask(AskWhy(id=new_id(), job=row["job_id"]))
    if why["state"] != "pending":
        return None, ""
    hosts = why["hosts"]
    codes = {(host["host"], one["code"]) for host in hosts for one in host["reasons"]}
    jobs = {(one["job_id"], one["code"]) for one in why.get("predecessors") or ()}
    return (why["paused"], codes, jobs), waits_for(why)


def waits_for(why: dict[str, Any]) -> str:
    """Say what a job waits for, and what is against the hosts that may take it later, if any."""
    said, hosts = summary(why), why["hosts"]
    if why.get("predecessors"):
        return said
    if why["paused"] and why["in_time"]:
        return f"it waits: {said}"
    near = {name for some in (why.get("suitable") or {}).values() for name in some}
    groups = alike([one for one in hosts if one["host"] in near] or hosts)
    if len(groups) == 1 and (near or why["known"] == len(hosts)):
        texts, of = groups[0]
        where = "" if why["known"] == 1 else f"{names(of)}: "
        return f"it waits: {said}: {where}{'; '.join(texts)}"
    return f"it waits: {said}; `fleet why {why['name']}` has the reasons"
