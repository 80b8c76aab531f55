"""`fleet workers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from coordinator.cli.common import client_options, json_option

if TYPE_CHECKING:
    from coordinator.cli.client import OperatorClient

NEAR_S: Final = 30 * 86_400.0


@click.command("workers")
@json_option
@client_options
def workers_command(client: OperatorClient, as_json: bool) -> None:
    """The hosts: what they are, what they do, when they were last heard of.

    Example: fleet workers
    """
    rows = client.list_workers()
    from coordinator.cli import render

    if as_json:
        render.print_json(rows)
        return
    if not rows:
        click.echo("no hosts; start an agent on each with `fleet agent --broker URL --data DIR`")
        return
    columns = ("HOST", "STATUS", ">CORES", ">RAM FREE", "GPU", ">VRAM FREE", "JOBS", "SEEN")
    out = render.console()
    out.print(render.table(columns, [_cells(row) for row in rows]))
    for row in rows:
        for why in [*row["barred"], *_near_its_end(row)]:
            out.print(render.printable(f"{row['host']}: {why}"), style="yellow", soft_wrap=True)


def _near_its_end(row: dict[str, Any]) -> list[str]:
    """Say when a host's certificate ends, if that is soon: a column for it would be in the way."""
    from datetime import UTC, datetime

    from coordinator.cli import render

    ends = str((row["capability"] or {}).get("certificate_expires_at"))
    try:
        left_s = (datetime.fromisoformat(ends) - datetime.now(UTC)).total_seconds()
    except ValueError:  # none, or none that one can read
        return []
    if left_s > NEAR_S:
        return []
    if left_s <= 0:
        return [f"its certificate ended on {ends[:10]}; `fleet enroll {row['host']} --replace`"]
    return [f"its certificate ends on {ends[:10]}, in {render.span(left_s)}"]


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    from coordinator.cli import render

    capability = row["capability"] or {}
    heartbeat = row["heartbeat"] or {}
    gpus = heartbeat.get("gpus") or capability.get("gpus") or []
    free = [gpu["vram_free_bytes"] for gpu in gpus if gpu.get("vram_free_bytes") is not None]
    names = [gpu["name"] or "CUDA" for gpu in gpus]
    ram = heartbeat.get("ram_available_bytes", capability.get("ram_available_bytes"))
    jobs = [f"{held['name'] or held['job_id'][:12]} ({held['phase']})" for held in row["jobs"]]
    return (
        row["host"],
        render.state(row["presence"]),
        capability.get("physical_cores", "-"),
        render.size(ram),
        (f"{len(names)} x " if len(names) > 1 else "") + names[0] if names else "none",
        render.size(max(free)) if free else "-",
        ", ".join(jobs) or "idle",
        render.ago(row["last_seen"]),
    )
