"""`fleet list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from coordinator.cli.common import client_options, json_option

if TYPE_CHECKING:
    from rich.text import Text

    from coordinator.cli.client import OperatorClient

STATES = ("pending", "claimed", "running", "completed", "failed", "cancelled")


@click.command("list")
@click.option(
    "--status",
    "states",
    type=click.Choice(STATES),
    multiple=True,
    help="Only jobs in this state; may be given several times.",
)
@json_option
@client_options
def list_command(client: OperatorClient, states: tuple[str, ...], as_json: bool) -> None:
    """The jobs, next to be claimed first.

    Example: fleet list --status running --status failed
    """
    rows = client.list_jobs(states)
    from coordinator.cli import render

    if as_json:
        render.print_json(rows)
        return
    if not rows:
        click.echo("no jobs" if not states else f"no {' or '.join(states)} jobs")
        return
    columns = ("JOB", "STATE", "HOST", ">PRIO", ">TRY", ">AUROC", ">TOOK", "ID")
    cells = [
        (
            row["name"],
            _state(row),
            row["host"] or "-",
            row["priority"],
            row["attempt"],
            render.figure({"auroc": (row["metrics"] or {}).get("auroc")}, "auroc"),
            render.took(row),
            render.short(row["job_id"]),
        )
        for row in rows
    ]
    render.console().print(render.table(columns, cells))
    asked_for = [row["name"] for row in rows if row.get("submitted_by")]
    if asked_for:
        click.echo(f"by `fleet run`, not in the manifest: {', '.join(asked_for)}")
    orphans = sum(not row["in_plan"] for row in rows)
    if orphans:
        click.echo(f"*: {orphans} no longer in the manifest, and given to no host any more")
    for row in rows:
        if row["state"] == "failed":
            click.echo(f"{row['name']}: {render.first_line(row['error'], 100)}")


def _state(row: dict[str, Any]) -> Text:
    """Return a job's state, marked where the manifest does not have the job any more."""
    from coordinator.cli import render

    shown = render.state(row["state"])
    return shown if row["in_plan"] else shown.append("*", "bold")
