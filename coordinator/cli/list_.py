"""`fleet list`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from coordinator.jobs.in_words import away, no_room
from coordinator.jobs.set_aside import chance_words
from coordinator.ui import terminal
from coordinator.ui.live import View, viewing
from coordinator.ui.several import Choice, model_option, status_option
from coordinator.ui.terminal import Column
from coordinator.ui.words import by_row

if TYPE_CHECKING:
    from rich.text import Text

    from coordinator.client.client import OperatorClient


@click.command("list")
@status_option
@model_option
@viewing
def list_command(client: OperatorClient, states: tuple[str, ...], models: tuple[str, ...]) -> View:
    """The jobs: what runs, what waits, next to be claimed first, what is over, newest first.

    A wider window shows more of each.

    TOOK is how long the trainer of the newest attempt ran, without the wait for its report (where
    nobody has measured it: until its end was heard of); TRY counts the attempts. What all of them
    took together: `fleet show JOB`.

    \b
    Examples:
      fleet list --status running --status failed
      fleet list --model gbt
      fleet list --watch
    """  # noqa: D301 - \b is click's

    def draw(rows: list[dict[str, Any]]) -> Iterator[Any]:
        if rows:
            yield from _draw(rows)
        else:
            yield Choice((), states, models).none()

    return View(lambda: sorted(client.list_jobs(states, models), key=by_row), draw)


def _draw(rows: list[dict[str, Any]]) -> Iterator[Any]:
    columns = (
        Column("JOB", least=32),
        Column("STATE"),
        Column("HOST", rank=1, least=12),
        Column("DONE", rank=2, right=True),
        Column("LEFT", rank=3, right=True),
        Column("AUROC", rank=4, right=True),
        Column("TOOK", rank=5, right=True),
        Column("TRY", rank=6, right=True),
        Column("PRIO", rank=7, right=True),
        Column("ENDED", rank=9, right=True),
        Column("ARTIFACT", rank=10),
        Column("ID", rank=8, least=8),
    )
    yield terminal.table(columns, [_cells(row) for row in rows])
    asked_for = [row["name"] for row in rows if row.get("submitted_by")]
    if asked_for:
        yield f"by `fleet run`, not in the manifest: {', '.join(asked_for)}"
    orphans = sum(not row["in_plan"] for row in rows)
    if orphans:
        yield f"*: {orphans} no longer in the manifest, and given to no host any more"
    if names := [row["name"] for row in rows if row.get("unplaceable")]:
        yield terminal.unplaceable(names, len(names))
    yield from terminal.waiting(rows)
    if waits := [row for row in rows if row.get("awaits_cuda_s")]:
        yield terminal.awaiting_cuda(waits)
    planned = {row["name"] for row in rows if row["in_plan"]}
    for row in rows:
        if not row["in_plan"] and row["name"] in planned:
            old = row["job_id"][:12]
            yield f"{row['name']} means the job of the manifest; that with * is {old}"
    for row in rows:
        if row.get("below_chance"):
            yield f"{row['name']}: {chance_words(row['metrics'])}"
        if row.get("away"):
            yield f"{row['name']}: {away(row['away'])}"
        if lack := row.get("no_room"):
            yield f"{row['name']}: its result {no_room(lack)}"
        if row["state"] == "failed":
            yield f"{row['name']}: {terminal.first_line(row['error'], 300)}"


def _state(row: dict[str, Any]) -> Text:
    """Return a job's state, marked where the manifest does not have the job any more."""
    shown = terminal.state_of(row)
    return shown if row["in_plan"] else shown.append("*", "bold")


def _host(row: dict[str, Any]) -> Text:
    """Return which host has a job; that none could have it, or can yet, stands out."""
    waits = "yellow" if row.get("waits_for") else ""
    return terminal.Text(
        terminal.told(terminal.host(row)), "red" if row.get("unplaceable") else waits
    )


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    return (
        row["name"],
        _state(row),
        _host(row),
        terminal.done(row),
        terminal.left(row),
        terminal.result(row, terminal.score(row["metrics"])),
        terminal.took(row),
        row["attempt"],
        row["priority"],
        terminal.ago(row["finished_at"]),
        terminal.short(row["artifact_id"]),
        terminal.short(row["job_id"]),
    )
