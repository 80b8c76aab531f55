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
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from coordinator.cli import printable

__all__ = [
    "Text",
    "ago",
    "console",
    "figure",
    "first_line",
    "print_event",
    "print_json",
    "printable",
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
    "twins": "red",
    "revoked": "red",
    "crashed": "red",
    "cut-off": "red",
    "silent": "red",
    "asleep": "dim",
    "left": "dim",
}
ID_CHARS: Final = 12
GAP: Final = 2  # columns between two of a table


def print_json(data: Any) -> None:
    """Print JSON, indented where people read it."""
    click.echo(json.dumps(data, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False))


def console(*, stderr: bool = False) -> Console:
    """Return a console that colours terminals only and honours NO_COLOR."""
    # No markup, no emoji: "[hosts.pi]" in a reason is text, and a style is given beside it.
    return Console(stderr=stderr, highlight=False, soft_wrap=False, markup=False, emoji=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, wrap: bool = False) -> Table:
    """Return a plain table that fits the window: the last column gives way, then the first.

    A column whose name starts with '>' is aligned to the right. `wrap`: the last column goes on in
    the next line rather than being cut.
    """
    made = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, 1, 0, 0),
        collapse_padding=True,
    )
    titles = [name.lstrip(">") for name in columns]
    cells = [[_cell(cell) for cell in row] for row in rows]
    natural = [
        max([len(title), *(row[index].cell_len for row in cells)])
        for index, title in enumerate(titles)
    ]
    widths = _fit(natural, console().width)
    for index, name in enumerate(columns):
        folds = wrap and index == len(columns) - 1
        made.add_column(
            titles[index],
            justify="right" if name.startswith(">") else "left",
            no_wrap=not folds,
            overflow="fold" if folds else "ellipsis",
            width=widths[index],
        )
    for row in cells:
        made.add_row(*row)
    return made


def _fit(widths: Sequence[int], window: int) -> list[int]:
    fitted = list(widths)
    # The start of an id or of a reason says more than the start of a name.
    for index, least in ((-1, 8), (0, 12), (-1, 4)):
        excess = sum(fitted) + GAP * (len(fitted) - 1) - window
        if excess > 0:
            fitted[index] = max(min(fitted[index], least), fitted[index] - excess)
    return fitted


def _cell(value: Any) -> Text:
    return value if isinstance(value, Text) else Text(printable(str(value)))


def print_event(row: dict[str, Any]) -> None:
    """Print one thing that happened: when, who, what; why stands in the same line if it fits."""
    out = console()
    at = datetime.fromisoformat(row["at"]).astimezone()
    what = row["event"] if row["outcome"] == "done" else f"{row['event']} refused"
    line = Text(f"{at:%m-%d %H:%M:%S}  {printable(row['who'])[:22]:<14}  ", overflow="ellipsis")
    line.append(f"{what:<10}", style="" if row["outcome"] == "done" else "red")
    on = [part for part in (row["name"], row["host"] and f"on {row['host']}") if part]
    line.append(f"  {printable(' '.join(on))}" if on else "")
    why = first_line(row["why"], 2000)
    if why and line.cell_len + GAP + len(why) <= out.width:
        line.append(f"{' ' * GAP}{why}")
        why = ""
    out.print(line, no_wrap=True)
    if why:
        out.print(Padding(Text(why), (0, 0, 0, 16), expand=False))


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
    line = printable(text or "").strip().partition("\n")[0]
    return line if len(line) <= limit else line[: limit - 1] + "…"
