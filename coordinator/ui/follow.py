"""Follows one job to its end: a bar on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from broker.errors import BadMessage
from broker.protocol.messages import JOB_ROW, PROGRESS, AskShow, AskWhy, Progress, decode
from broker.protocol.topic_table import Kind
from broker.sentences import printable, span
from broker.system.machine import new_id
from coordinator.client.contact import Unreachable
from coordinator.jobs.job_progress import part_of
from coordinator.jobs.set_aside import BELOW_CHANCE, main_metric, metric_words
from coordinator.ui.progress import BAR
from coordinator.ui.words import say, told, took

if TYPE_CHECKING:
    from coordinator.client.client import OperatorClient

FINAL: Final = frozenset({"completed", "failed", "cancelled"})
ASK_EVERY_S: Final = 10.0
TELL_EVERY_S: Final = 20.0  # how far it is, where no bar is seen
MISSES: Final = 6  # questions without an answer, after which nobody is believed to be there
_WORDS: Final = 80  # characters of the line beside the bar, most often
_LEAST: Final = 4  # of a bar
NOBODY: Final = "no coordinator answers; the job goes on without, and it is asked again"
AGAIN: Final = "the coordinator answers again"
_NUMBER: Final = re.compile(r"\d+")
# What comes next when a job is over: the verb, and what that does.
_NEXT: Final = {
    "completed": ("get", "fetches it"),
    "failed": ("logs", "shows its output"),
    "cancelled": ("requeue", "brings it back"),
}


def until_over(
    client: OperatorClient, job_id: str, *, quiet: bool, fetches: bool = False
) -> dict[str, Any]:
    """Return a job's row when the job is over; the client watches rows and progress.

    It ends with what came of the job, and with the next step unless the result is fetched anyway
    (`fetches`). Ctrl-C ends the waiting, not the job. Raises `Unreachable` when no coordinator
    answers for long.
    """
    screen = _Screen(quiet=quiet, fetches=fetches)
    asked_s, misses = 0.0, 0
    row: dict[str, Any] = {}
    try:
        while row.get("state") not in FINAL:
            if time.monotonic() - asked_s >= ASK_EVERY_S:
                asked_s = time.monotonic()
                try:
                    row = client.ask(AskShow(id=new_id(), job=job_id))
                    if misses and not quiet:
                        screen.say(AGAIN)
                    misses = 0
                except Unreachable:
                    misses += 1
                    if misses >= MISSES:
                        raise
                    screen.stall()
                screen.show(row, None)
                if row.get("state") == "pending" and not misses and not quiet:
                    screen.say(_waits(client, row))
            for topic, payload in client.messages(wait_s=1.0):
                if topic.job_id == job_id and payload:
                    row = _heard(topic.kind, payload, row, screen)
    except KeyboardInterrupt:
        say("no longer waiting; the job stays", err=True)
        raise
    finally:
        screen.close()
    return row


def outcome(row: dict[str, Any], *, fetches: bool = False) -> str:
    """Return in a line what came of a job that is over, and what comes next."""
    on = f" on {row['host']}" if row.get("host") else ""
    ran = f"trained for {said}" if (said := took(row)) else ""
    chance = BELOW_CHANCE if row.get("below_chance") else ""
    facts = ", ".join(filter(None, (ran, metric_words(row["metrics"]), chance)))
    line = f"{row['name']} {row['state']}{on}{': ' if facts else ''}{facts}"
    if not (fetches and row["state"] == "completed"):
        line += f"; `{_next(row)}` {_NEXT[row['state']][1]}"
    return printable(line)


def in_fields(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with what `outcome` says beyond it: `score`, `next`."""
    name = main_metric(row["metrics"])
    score = None if name is None else {"name": name, "value": row["metrics"][name]}
    return row | {"score": score, "next": _next(row)}


def _next(row: dict[str, Any]) -> str:
    return f"fleet {_NEXT[row['state']][0]} {row['name']}"


def _waits(client: OperatorClient, row: dict[str, Any]) -> str:
    """Return in a line why a job is pending; nothing where it is about to be assigned."""
    try:
        why = client.ask(AskWhy(id=new_id(), job=row["job_id"]))
    except Unreachable:
        return ""
    hosts = why["hosts"]
    if why["state"] != "pending" or any(host["eligible"] for host in hosts):
        return ""
    alike = {tuple(host["reasons"]) for host in hosts}
    if why["summary"] in {reason for reasons in alike for reason in reasons}:
        return f"it waits: {why['summary']}"
    if len(alike) == 1 and why["known"] == len(hosts):
        return f"it waits: {why['summary']}: {'; '.join(*alike)}"
    return f"it waits: {why['summary']}; `fleet why {row['name']}` has the reasons"


def _how_far(progress: Progress) -> list[str]:
    """Return how far a trainer is, by its own word; nothing where it has named no epochs."""
    if not progress.epochs:
        return []
    epoch = progress.epoch or 0
    said = [f"{part_of(epoch, progress.epochs):.0%}", f"{epoch}/{progress.epochs}"]
    losses = (progress.val_loss, progress.train_loss)
    said += [f"loss {one:.4f}" for one in losses if one is not None][:1]
    return said + ([] if progress.eta_s is None else [f"{span(progress.eta_s)} left"])


def _is_behind(row: dict[str, Any], last: dict[str, Any]) -> bool:
    """Whether a row was published before what an answer has said meanwhile."""
    if not last or row["attempt"] != last["attempt"]:
        return bool(last) and row["attempt"] < last["attempt"]
    return last["state"] in FINAL or (row["state"], last["state"]) == ("claimed", "running")


def _heard(kind: Kind, payload: bytes, row: dict[str, Any], screen: _Screen) -> dict[str, Any]:
    try:
        if kind is Kind.JOB:
            heard = decode(JOB_ROW, payload).model_dump(mode="json")
            if not _is_behind(heard, row):
                row = heard
                screen.show(row, None)
        elif kind is Kind.PROGRESS:
            progress = decode(PROGRESS, payload)
            if row and progress.attempt == row["attempt"]:  # else of an agent that died
                screen.show(row, progress)
    except BadMessage:
        pass
    return row


class _Screen:
    """What is seen of a job while it is waited for."""

    def __init__(
        self, *, quiet: bool, fetches: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fetches = fetches
        self._clock = clock
        self._told_s = clock()
        self._said = ""
        self._why = ""
        self._quiet = quiet
        self._bar: Any = None
        if sys.stderr.isatty():
            from rich import progress as rich

            from coordinator.ui import terminal

            console = terminal.console(stderr=True)
            room = console.width - _WORDS
            columns = (
                rich.TextColumn("{task.description}"),
                *([rich.BarColumn(min(BAR, room))] if room >= _LEAST else []),
                rich.TextColumn("{task.fields[figures]}"),
            )
            self._bar = rich.Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task("", total=None, figures="")
            self._bar.start()

    def show(self, row: dict[str, Any], progress: Progress | None) -> None:
        """Show a row, or the progress of what it tells of."""
        if not row:
            return
        where = f" on {row['host']}" if row.get("host") else ""
        state = printable(f"{row['name']} {row['state']}{where}")
        if self._bar is not None:
            self._draw(row, state, progress)
        elif progress is not None and not self._quiet:
            self._tell(state, progress)
        if state == self._said:
            return
        self._said = state
        if row["state"] in FINAL and not self._quiet:
            self.close()
            if row["state"] == "failed":
                say(printable(f"error: {row['error']}"), err=True)
            say(outcome(row, fetches=self._fetches))
        elif self._bar is None and not self._quiet:
            say(state)

    def _tell(self, state: str, progress: Progress) -> None:
        """Say now and then how far it is."""
        if self._clock() - self._told_s >= TELL_EVERY_S and (words := _how_far(progress)):
            self._told_s = self._clock()
            say(f"{state}: {', '.join([words[0], f'epoch {words[1]}', *words[2:]])}")

    def stall(self) -> None:
        """Say that what is shown is old, and leave out the figures."""
        if self._bar is not None:
            self._bar.update(self._task, figures="")
        if not self._quiet:
            self.say(NOBODY)

    def say(self, why: str) -> None:
        """Say why the job is pending, and once how to stop waiting; nothing that was said last."""
        gist = _NUMBER.sub("", why)  # of a count of seconds every word would be news
        if gist in {"", self._why}:
            return
        first, self._why = not self._why, gist
        more = "\nCtrl-C stops waiting, the job stays" if first else ""
        text = f"{told(why)}{more}"
        if self._bar is None:
            say(text, err=True)
            return
        from coordinator.ui import terminal

        self._bar.console.print(terminal.Line(text, indent=0))

    def _draw(self, row: dict[str, Any], state: str, progress: Progress | None) -> None:
        if progress is not None and (words := _how_far(progress)):
            self._bar.update(
                self._task, description=state, total=progress.epochs,
                completed=progress.epoch or 0, figures=", ".join(words),
            )  # fmt: skip
        elif row["state"] != "running":
            self._bar.update(self._task, description=state, total=None, figures="")
        elif not self._said.endswith(state):
            self._bar.update(self._task, description=state)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
