"""`fleet workers`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from coordinator.jobs.in_words import words
from coordinator.ui import terminal
from coordinator.ui.live import View, viewing
from coordinator.ui.terminal import Column

if TYPE_CHECKING:
    from rich.text import Text

    from coordinator.client.client import OperatorClient

NEAR_S: Final = 30 * 86_400.0
_MAKERS: Final = ("NVIDIA ", "GeForce ", "AMD ", "Radeon ")


@click.command("workers")
@viewing
def workers_command(client: OperatorClient) -> View:
    """The hosts: how each is, what it does, what it has free.

    A wider window shows more of each, also what its owner or the manifest describes it as;
    --json has all of it.

    \b
    Examples:
      fleet workers
      fleet workers --watch
      fleet workers --json
    """  # noqa: D301 - \b is click's
    return View(client.list_workers, _draw)


def _draw(rows: list[dict[str, Any]]) -> Iterator[Any]:
    if not rows:
        yield "no hosts; start an agent on each with `fleet agent --data DIR`"
        return

    columns = [
        Column("HOST", least=12),
        Column("STATUS"),
        Column("JOBS", rank=1, least=32),
        Column("CORES", rank=5, right=True),
        Column("CPU", rank=6, right=True),
        Column("RAM FREE", rank=4, right=True),
        Column("GPU", rank=2, least=8),
        Column("VRAM FREE", rank=3, right=True),
        Column("USE", rank=7, right=True),
        Column("POWER", rank=8, right=True),
        Column("VERSION", rank=9),
    ]
    if any(map(_described, rows)):
        columns.append(Column("DESCRIPTION", rank=10, least=20))
    yield terminal.table(columns, [_cells(row)[: len(columns)] for row in rows])
    for row in rows:
        for why in [*map(words, row["barred"]), *_twins(row), *_near_its_end(row)]:
            yield terminal.Line(f"{row['host']}: {why}", style="yellow")


def _twins(row: dict[str, Any]) -> list[str]:
    if row["presence"] != "twins":
        return []
    said = "two agents use its name; start one of them with another --host"
    if (row["capability"] or {}).get("certificate_expires_at"):
        said = "two agents use its certificate; `fleet enroll` another name for one of them"
    if alone_in_s := row.get("alone_in_s"):
        said += f"; clears in {terminal.span(alone_in_s)} once one of them has gone"
    return [said]


def _near_its_end(row: dict[str, Any]) -> list[str]:
    """Say when a host's certificate ends, if that is soon: a column for it would be in the way."""
    from datetime import UTC, datetime

    ends = str((row["capability"] or {}).get("certificate_expires_at"))
    try:
        end = datetime.fromisoformat(ends)
        left_s = (end - datetime.now(UTC)).total_seconds()
    except (TypeError, ValueError):  # none, or none that one can read, as without its zone
        return []
    if left_s > NEAR_S:
        return []
    day = end.astimezone().date()
    if left_s <= 0:
        return [f"its certificate ended on {day}; `fleet enroll {row['host']} --replace`"]
    return [f"its certificate ends on {day}, in {terminal.span(left_s)}"]


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    capability = row["capability"] or {}
    here = row["status"] == "online"  # of a host that is away nothing old is shown
    heartbeat = (row["heartbeat"] or {}) if here else {}
    cards = heartbeat.get("gpus") or capability.get("gpus") or []
    gpus = cards if here else []
    free = [gpu["vram_free_bytes"] for gpu in gpus if gpu.get("vram_free_bytes") is not None]
    use = [gpu["use_percent"] for gpu in gpus if gpu.get("use_percent") is not None]
    power = [gpu["power_w"] for gpu in gpus if gpu.get("power_w") is not None]
    ram = heartbeat.get("ram_available_bytes", capability.get("ram_available_bytes"))
    cpu = heartbeat.get("cpu_percent")
    return (
        row["host"],
        _status(row),
        _doing(row),
        capability.get("physical_cores", "-"),
        "-" if cpu is None else f"{cpu:.0f}%",
        terminal.size(ram if here else None),
        _gpu_names(cards),
        terminal.size(max(free)) if free else "-",
        f"{sum(use) / len(use):.0f}%" if use else "-",
        f"{sum(power):.0f} W" if power else "-",
        capability.get("agent_version") or "-",
        _described(row) or "-",
    )


def _described(row: dict[str, Any]) -> str:
    """Return what a host is in its owner's words, else in the manifest's."""
    said = [(row.get(of) or {}).get("description") for of in ("capability", "policy")]
    return terminal.first_line(said[0] or said[1])


def _status(row: dict[str, Any]) -> Text:
    """Return how a host is in a word; of one that is there, why it is given no jobs."""
    return terminal.state(row["condition"])


def _doing(row: dict[str, Any]) -> str:
    """Return what a host is at, or when it was last heard of."""
    if row["status"] != "online":
        if row["last_seen"] is None:
            return "not seen since the coordinator's start"
        return f"last seen {terminal.ago(row['last_seen'])}"
    idle = "takes no jobs" if row["barred"] else "idle"
    return ", ".join(_held(held) for held in row["jobs"]) or idle


def _held(held: dict[str, Any]) -> str:
    """Name a job that a host holds, with how far it is, or what it is at instead of training."""
    name = held["name"] or held["job_id"][:12]
    share = held.get("progress")
    if held["phase"] != "running":
        return f"{name} ({held['phase']})"
    return f"{name} {share:.0%}" if share is not None else str(name)


def _gpu_names(gpus: list[dict[str, Any]]) -> str:
    """Return the cards in few words: their maker says nothing that the model does not."""
    if not gpus:
        return "-"
    name = str(gpus[0]["name"] or "CUDA")
    for maker in _MAKERS:
        name = name.removeprefix(maker)
    return f"{len(gpus)} x {name}" if len(gpus) > 1 else name
