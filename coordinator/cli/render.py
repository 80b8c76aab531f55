"""Tables, times and sizes for people; JSON for scripts. Only the verbs that print load this."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = [
    "Text",
    "ago",
    "console",
    "figure",
    "first_line",
    "print_json",
    "short",
    "size",
    "span",
    "state",
    "table",
    "took",
]

STATE_STYLES: Final = {
    "pending": "yellow",
    "claimed": "cyan",
    "running": "blue",
    "completed": "green",
    "failed": "red",
    "cancelled": "dim",
    "online": "green",
    "offline": "red",
}
ID_CHARS: Final = 12


def print_json(data: Any) -> None:
    """Print JSON, indented where people read it."""
    click.echo(json.dumps(data, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False))


def console(*, stderr: bool = False) -> Console:
    """Return a console that colours terminals only and honours NO_COLOR."""
    return Console(stderr=stderr, highlight=False, soft_wrap=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Return a plain table; where the window is narrow, the first and last column give way.

    A column whose name starts with '>' is aligned to the right.
    """
    made = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, 2, 0, 0),
        collapse_padding=True,
    )
    cells = [[cell if isinstance(cell, Text) else Text(str(cell)) for cell in row] for row in rows]
    for index, name in enumerate(columns):
        title = name.lstrip(">")
        fixed = 0 < index < len(columns) - 1
        width = max([len(title), *(row[index].cell_len for row in cells)])
        made.add_column(
            title,
            justify="right" if name.startswith(">") else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=width if fixed else 4,
        )
    for row in cells:
        made.add_row(*row)
    return made


def state(name: str) -> Text:
    """Return a state in its colour."""
    return Text(name, style=STATE_STYLES.get(name, ""))


def ago(at: str | None, now: datetime | None = None) -> str:
    """Return an RFC 3339 time as people say it: `3 min ago`."""
    if not at:
        return "-"
    seconds = ((now or datetime.now(UTC)) - datetime.fromisoformat(at)).total_seconds()
    return "now" if abs(seconds) < 2 else f"{span(abs(seconds))} ago"


def span(seconds: float) -> str:
    """Return a duration in the largest unit that fits: `45 s`, `3 min`, `2.5 h`, `4 d`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 36 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.0f} d"


def took(row: dict[str, Any]) -> str:
    """Return how long a job ran, or has been running."""
    if not row.get("started_at"):
        return "-"
    start = datetime.fromisoformat(row["started_at"])
    end = row.get("finished_at")
    stop = datetime.fromisoformat(end) if end else datetime.now(UTC)
    return span(max(0.0, (stop - start).total_seconds()))


def size(count_bytes: float | None) -> str:
    """Return a number of bytes in binary units."""
    if count_bytes is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count_bytes < 1024:
            return f"{count_bytes:.0f} {unit}" if unit == "B" else f"{count_bytes:.1f} {unit}"
        count_bytes /= 1024
    return f"{count_bytes:.1f} TiB"


def short(identity: str | None) -> str:
    """Return the start of an id, enough to name it by."""
    return identity[:ID_CHARS] if identity else "-"


def figure(metrics: dict[str, Any] | None, name: str) -> str:
    """Return a metric to three decimals, with its interval if it has one."""
    value = (metrics or {}).get(name)
    if not isinstance(value, int | float):
        return "-"
    interval = (metrics or {}).get(f"{name}_ci")
    if isinstance(interval, list) and len(interval) == 2 and None not in interval:
        return f"{value:.3f} [{interval[0]:.2f}, {interval[1]:.2f}]"
    return f"{value:.3f}"


def first_line(text: str | None, limit: int = 60) -> str:
    """Return the first line of a text, cut where it is long."""
    line = (text or "").strip().splitlines()[0] if (text or "").strip() else ""
    return line if len(line) <= limit else line[: limit - 1] + "…"
