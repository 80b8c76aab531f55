"""What keeps jobs from hosts, in words: lines for `fleet status`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from coordinator.cli import render

SHOWN: Final = 8


def paused(status: dict[str, Any]) -> Iterator[render.Text]:
    """Yield that the fleet is paused, if it is: nobody should have to look for that."""
    if status.get("paused"):
        words = f"PAUSED: no new jobs are given out; {status['paused']}"
        yield render.Text(render.printable(words), style="bold yellow")


def restrained(status: dict[str, Any]) -> Iterator[render.Text]:
    """Yield the hosts that are given no jobs, a line each, the first few."""
    rows = status.get("restrained", [])
    for row in rows[:SHOWN]:
        words = f"{'':<13}{row['host']}: {'; '.join(row['reasons'])}"
        yield render.Text(render.printable(words), style="yellow")
    if len(rows) > SHOWN:
        yield render.Text(f"{'':<13}... and {len(rows) - SHOWN} more; see `fleet workers`")
