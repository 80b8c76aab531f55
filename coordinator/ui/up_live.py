"""What `fleet up` says while it runs; with `--until-idle` also what came of it and what is left."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from broker.errors import LocalError
from broker.figures import counted, some
from broker.protocol.messages import AskStatus, AskWhy
from broker.system.address import parse_addresses, text_of
from broker.system.machine import new_id
from broker.system.settings import BrokerSettings
from coordinator.client.client import OperatorClient
from coordinator.client.rows import listed
from coordinator.jobs.reason_words import before, summary, wished, words
from coordinator.jobs.result_words import mark_words
from coordinator.ui import EXIT_NOTHING_RAN, EXIT_REFUSED, terminal
from coordinator.ui.fleet_columns import JOBS, shown
from coordinator.ui.follow import Board, why_pending
from coordinator.ui.live import until
from coordinator.ui.progress import waiting
from coordinator.ui.words import is_json

if TYPE_CHECKING:
    from coordinator.ui.processes import Fleet

POLL_S: Final = 1.0
TIMEOUT_S: Final = 30.0
FACT: Final = 13  # characters, of what a line is about
MOST: Final = 100  # jobs that are asked about at the end
MOST_HELPS: Final = 8
_NAMED: Final = 3
_NOT_SHOWN: Final = ("share", "attempt", "priority", "started", "finished", "model", "mode", "id")
Row = dict[str, Any]  # as the coordinator has told
_ELSEWHERE: Final = (
    "have them trained elsewhere: a fleet of several machines takes them "
    '(README.md, "A fleet of several machines")'
)


def until_stopped(
    fleet: Fleet, settings: BrokerSettings, state: Path, lacks: Collection[str]
) -> int:
    """Say where things are and what is lacking, then watch over the children until interrupted."""
    address = text_of(parse_addresses(settings.url))  # without a password, should it have one
    click.echo(f"broker       {address}")
    click.echo(f"state        {state}")
    click.echo(f"logs         {state / 'logs'}")
    for lack in lacks:
        terminal.say(lack, indent=FACT)
    name_it = "set" if os.name == "nt" else "export"
    click.echo(f"\nLook at it:  {name_it} FLEET_BROKER={address}")
    click.echo("             fleet status | fleet list | fleet workers | fleet why JOB")
    terminal.say("Ctrl-C stops everything.")
    while True:
        fleet.check()
        time.sleep(POLL_S)


def watch_until_idle(fleet: Fleet, settings: BrokerSettings, hosts: Collection[str]) -> int:
    """Show progress until nothing is left that could run on `hosts` or others, then the results.

    Return 0, `EXIT_REFUSED` where a job failed, or `EXIT_NOTHING_RAN` where none could be done.
    """
    as_json = is_json()
    with OperatorClient(settings, TIMEOUT_S, patient=True) as client:
        with waiting("waiting for the coordinator to hear of every agent"):
            _meet(fleet, client, hosts)
        with Board(aside=as_json) as board:
            run = _Run(fleet, client, board, aside=as_json)
            if not until(run.is_idle, lambda: time.sleep(POLL_S), board.say, misses=1):
                raise KeyboardInterrupt
        rows = run.rows
        left = left_over(client, rows)
        if as_json:
            terminal.print_json(to_list(rows, left))
        else:
            _results(rows, fleet.state)
        if waits := sum(row["state"] == "pending" for row in rows):
            out = terminal.console(stderr=as_json)  # what a program reads is not disturbed
            if waits == len(rows):
                out.print("Nothing could run.", style="yellow")
            out.print()
            terminal.put(out, in_words(client, left, waits))
    states = {row["state"] for row in rows if row["in_plan"]}
    if "failed" in states:
        return EXIT_REFUSED
    return EXIT_NOTHING_RAN if "pending" in states and "completed" not in states else 0


def _meet(fleet: Fleet, client: OperatorClient, hosts: Collection[str]) -> None:
    """Wait until the coordinator knows what each host is: before, nothing could seem to run."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        fleet.check()
        known = {
            row["host"]
            for row in client.list_workers()
            if row["status"] == "online" and row["capability"] is not None
        }
        unknown = sorted({*hosts} - known)
        if not unknown:
            return
        if time.monotonic() > deadline_s:
            names = ", ".join(unknown)
            raise LocalError(f"the coordinator has not heard of {names} in {TIMEOUT_S:g} s")
        time.sleep(POLL_S / 10)


@dataclass(slots=True)
class _Run:
    """The jobs until nothing is left that could run; `rows` as they were at the last look."""

    fleet: Fleet
    client: OperatorClient
    board: Board
    aside: bool
    rows: list[Row] = field(default_factory=list)
    idle_looks: int = 0
    says_why: bool = True  # once, until something has run again
    is_first: bool = True

    def is_idle(self) -> bool:
        """Show how the jobs are, and tell whether nothing is left."""
        self.fleet.check()
        status = self.client.ask(AskStatus(id=new_id()))
        self.rows = self.client.list_jobs()
        counts = ", ".join(f"{count} {name}" for name, count in status["jobs"].items() if count)
        if self.is_first and not self.board.is_live:
            online = status["hosts"]["online"]
            hosts = f"{counted(online, 'host')} {'is' if online == 1 else 'are'} online"
            terminal.say(f"{counts or 'no jobs'}; {hosts}", err=self.aside)
        self.is_first = False
        self.board.show(self.rows, counts)
        if status["active"]:
            self.says_why = True
        elif (
            self.says_why and status["runnable"] and not self.board.is_live
            and (words := held_up(self.client, self.rows))
        ):  # fmt: skip
            self.says_why = False
            terminal.say(terminal.printable(words), err=self.aside)
        # Twice, a second apart: between two jobs there is a moment in which nothing is assigned.
        self.idle_looks = 0 if status["active"] or status["runnable"] else self.idle_looks + 1
        return self.idle_looks >= 2


def _results(rows: list[Row], state: Path) -> None:
    out = terminal.console()
    if not rows:
        out.print("nothing to do: the manifest has no jobs, or --manifest was not given")
        return
    done = [row for row in rows if row["state"] != "pending"]
    if not done:
        return
    listed_rows = [listed(row, time.time()) for row in done]
    out.print(terminal.fleet_table(shown(JOBS, "list", *_NOT_SHOWN), listed_rows), "")
    for row in done:
        if marks := row.get("marks"):
            said = f"{row['name']} is {mark_words(marks, row['metrics'])}"
            terminal.put(out, [terminal.Line(said, style="yellow")])
        if row["error"]:
            words = terminal.Line(f"{row['name']} failed: {row['error']}", style="red")
            terminal.put(out, [words])
    stored = sum(row["state"] == "completed" for row in rows)
    terminal.put(out, [f"{counted(stored, 'artifact')} in {state / 'coordinator' / 'models'}"])


@dataclass(frozen=True, slots=True)
class LeftOver:
    """A job that nobody here can run: what is against it, and what would help."""

    row: Row
    reasons: tuple[str, ...]
    helps: tuple[str, ...]


def left_over(client: OperatorClient, rows: Sequence[Row]) -> list[LeftOver]:
    """Return the jobs of these rows that wait, of many the first."""
    waiting = [row for row in rows if row["state"] == "pending"]
    return [_of(client, row) for row in waiting[:MOST]]


def _of(client: OperatorClient, row: Row) -> LeftOver:
    why = client.ask(AskWhy(id=new_id(), job=row["job_id"]))
    reasons = {words(one) for host in why["hosts"] for one in host["reasons"]}
    told = (*before(why), *sorted(reasons)) or (summary(why),)
    return LeftOver(row, told, tuple(wished(why)[1]))


def held_up(client: OperatorClient, rows: Sequence[Row]) -> str:
    """Say what the first job waits for that could run in time; empty where there is none."""
    for row in rows:
        if row["state"] == "pending" and not (row.get("unplaceable") or row.get("waits_for")):
            text = why_pending(client, row)[1]
            return f"{row['name']}: {text}" if text else ""
    return ""


def to_list(rows: Sequence[Row], left: Sequence[LeftOver]) -> list[Row]:
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
    behind = all((one.row.get("waits_for") or {}).get("what") == "job" for one in left)
    since = "no host here can run them" if never else "no host here takes them now"
    since = "the jobs before them were not completed" if behind else since
    yield f"Left over ({count}), since {words(paused) if paused else since}:"
    for one in left:
        yield f"  {one.row['name']:<26} {'; '.join(one.reasons)}"
    if count > len(left):
        yield f"  and {count - len(left)} more"
    if paused:
        return
    yield "What would help:"
    helps = _helps(left)
    for text, names in [*helps.items()][:MOST_HELPS]:
        yield f"  {some(names, _NAMED)}: {text}"
    if len(helps) > MOST_HELPS:
        yield f"  and {len(helps) - MOST_HELPS} more changes"
    if not behind:
        yield f"  {'or ' if helps else ''}{_ELSEWHERE}"


def _helps(left: Sequence[LeftOver]) -> dict[str, list[str]]:
    """Return what would help, with the names of the jobs that it would help."""
    found: dict[str, list[str]] = {}
    for one in left:
        for text in one.helps:
            found.setdefault(text, []).append(one.row["name"])
    return found
