"""Follows one job to its end: a bar on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from broker.errors import BadMessage
from broker.machine import new_id
from broker.messages import JOB_ROW, PROGRESS, AskShow, Progress, decode
from broker.topics import Kind
from coordinator.cli import Unreachable, printable

if TYPE_CHECKING:
    from coordinator.cli.client import OperatorClient

FINAL: Final = frozenset({"completed", "failed", "cancelled"})
ASK_EVERY_S: Final = 10.0
MISSES: Final = 6  # questions without an answer, after which nobody is believed to be there


def until_over(client: OperatorClient, job_id: str, *, quiet: bool) -> dict[str, Any]:
    """Return a job's row when the job is over; the client watches rows and progress.

    Ctrl-C ends the waiting, not the job. Raises `Unreachable` when no coordinator answers for long.
    """
    screen = _Screen(quiet=quiet)
    asked_s, misses = 0.0, 0
    row: dict[str, Any] = {}
    try:
        while row.get("state") not in FINAL:
            if time.monotonic() - asked_s >= ASK_EVERY_S:
                asked_s = time.monotonic()
                try:
                    row = client.ask(AskShow(id=new_id(), job=job_id))
                    misses = 0
                except Unreachable:
                    misses += 1
                    if misses >= MISSES:
                        raise
                screen.show(row, None)
            for topic, payload in client.messages(wait_s=1.0):
                if topic.job_id == job_id and payload:
                    row = _heard(topic.kind, payload, row, screen)
    except KeyboardInterrupt:
        click.echo("no longer waiting; the job goes on", err=True)
        raise
    finally:
        screen.close()
    return row


def _heard(kind: Kind, payload: bytes, row: dict[str, Any], screen: _Screen) -> dict[str, Any]:
    try:
        if kind is Kind.JOB:
            row = decode(JOB_ROW, payload).model_dump(mode="json")
            screen.show(row, None)
        elif kind is Kind.PROGRESS:
            screen.show(row, decode(PROGRESS, payload))
    except BadMessage:
        pass
    return row


class _Screen:
    """What is seen of a job while it is waited for."""

    def __init__(self, *, quiet: bool) -> None:
        self._said = ""
        self._quiet = quiet
        self._bar: Any = None
        if sys.stderr.isatty() and not quiet:
            from rich import progress as rich

            from coordinator.cli import render

            columns = (
                rich.TextColumn("{task.description}"),
                rich.BarColumn(),
                rich.TextColumn("{task.fields[loss]}"),
                rich.TimeElapsedColumn(),
            )
            self._bar = rich.Progress(
                *columns, console=render.console(stderr=True), transient=True
            )  # fmt: skip
            self._task = self._bar.add_task("", total=None, loss="")
            self._bar.start()

    def show(self, row: dict[str, Any], progress: Progress | None) -> None:
        """Show a row, or the progress of what it tells of."""
        if not row:
            return
        where = f" on {row['host']}" if row.get("host") else ""
        state = printable(f"{row['name']} {row['state']}{where}")
        if self._bar is not None:
            self._draw(row, state, progress)
        if state != self._said:
            self._said = state
            if self._bar is None and not self._quiet:
                click.echo(state)
            elif row["state"] in FINAL and not self._quiet:
                self.close()
                click.echo(state)
            if row["state"] == "failed" and not self._quiet:
                click.echo(printable(f"error: {row['error']}"), err=True)

    def _draw(self, row: dict[str, Any], state: str, progress: Progress | None) -> None:
        if progress is not None and progress.epochs:
            losses = (progress.val_loss, progress.train_loss)
            loss = next((f"loss {one:.4f}" for one in losses if one is not None), "")
            words = f"{state}, {progress.epoch or 0}/{progress.epochs}"
            self._bar.update(
                self._task, description=words, total=progress.epochs,
                completed=progress.epoch or 0, loss=loss,
            )  # fmt: skip
        elif row["state"] != "running":
            self._bar.update(self._task, description=state, total=None, loss="")
        elif not self._said.endswith(state):
            self._bar.update(self._task, description=state)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
