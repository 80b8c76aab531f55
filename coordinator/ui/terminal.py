"""What people see: a console, tables, states in colour; JSON for scripts. Loads rich.

Words that need no terminal are in `words`, and are to be had from here as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from broker.figures import span
from broker.wrapping import HANG, LEAST, held, printable
from coordinator.client.rows import Row
from coordinator.jobs import host_condition
from coordinator.jobs.causes import in_words
from coordinator.ui.fitted_table import HELD, Table
from coordinator.ui.fleet_columns import TONES, FleetColumn
from coordinator.ui.words import *  # noqa: F403 - they are to be had from here as well
from coordinator.ui.words import by, first_line, local

__all__ = ["Text", "printable", "span"]  # as are these

STYLES: Final = {"good": "green", "busy": "cyan", "warn": "yellow", "bad": "red", "dim": "dim"}
PIPE_WIDTH: Final = 1000  # nothing is cut for a program that reads


class _Console(Console):
    """Leaves to the command line what it means that nobody reads any more."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """Return a console that colours terminals only and honours NO_COLOR."""
    # No markup, no emoji: "[hosts.pi]" in a reason is text, and a style is given beside it.
    made = _Console(stderr=stderr, highlight=False, soft_wrap=False, markup=False, emoji=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PIPE_WIDTH
    return made


class Line:
    """A line of text. In a window it goes on indented; for a program it stays one line.

    It is broken between words, but not within a command that one may copy, or an amount.
    """

    def __init__(self, text: str | Text, *, indent: int | None = None, style: str = "") -> None:
        """Take a text, which is made fit to be read unless it is a `Text`.

        What does not fit goes on after `indent` blanks; unless that is said, a little further in
        than its line begins.
        """
        self._text = text if isinstance(text, Text) else Text(printable(text), style)
        self._indent = indent

    def is_whole(self, console: Console) -> bool:
        """Whether it is not broken: whoever reads it there is a program."""
        return console.width >= PIPE_WIDTH

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        for line in self._text.split("\n", allow_blank=True):
            if line.cell_len <= width or self.is_whole(console):
                yield line
                continue
            line.plain = held(line.plain, HELD)
            first = line.wrap(console, width)[0]
            rest = line[len(first.plain) :]
            rest = rest[len(rest.plain) - len(rest.plain.lstrip()) :]
            lead = len(line.plain) - len(line.plain.lstrip())
            indent = lead + HANG if self._indent is None else self._indent
            beside = Text(" " * indent)
            after = rest.wrap(console, max(LEAST, width - indent)) if rest else ()
            for part in (first, *(beside + one for one in after)):
                part.plain = part.plain.rstrip().replace(HELD, " ")
                yield part


def put(out: Console, parts: Iterable[Any]) -> None:
    """Print parts of a view, each below the other; a plain string is a `Line`."""
    for part in parts:
        shown = Line(part) if isinstance(part, str) else part
        # Neither wrapped nor cut: for a program, a line is a line.
        out.print(shown, soft_wrap=isinstance(shown, Line) and shown.is_whole(out))


def paragraph(text: str | Text, indent: int = 0, *, hang: int = 0, style: str = "") -> Line:
    """Return sentences that begin after `indent` blanks, and go on `hang` blanks further in."""
    shown = text if isinstance(text, Text) else Text(printable(text), style)
    return Line(Text(" " * indent).append(shown), indent=indent + hang)


def print_event(row: dict[str, Any]) -> None:
    """Print one thing that happened: when, who, what; where and why beside it, or below."""
    what = row["event"] if row["outcome"] == "done" else f"{row['event']} refused"
    who, host = by(row), row["host"]
    if host is None and who.startswith("host:"):  # what it had, and has no more
        who, host = "host", who.removeprefix("host:")
    place = "of" if row["event"] in {"enroll", "revoke"} else "on"  # done where the CA is
    on = " ".join(filter(None, (row["name"], host and f"{place} {host}")))
    line = Text(f"{local(row['at'])}  {printable(who)[:22]:<14}  ")
    line.append(f"{what:<10}", style="" if row["outcome"] == "done" else "red")
    rest = f"{printable(on)}  {first_line(in_words(row['why']), 2000)}".strip()
    put(console(), [Line(line.append(f"  {rest}" if rest else ""), indent=16)])


def fleet_table(
    columns: Sequence[FleetColumn], rows: Iterable[Row], *, bars: bool = False
) -> Table:  # fmt: skip
    """Return jobs or hosts as a table, with `bars` where they are watched."""
    return Table(
        columns,
        [[styled(*one.cell(row, one.width * bars)) for one in columns] for row in rows],
    )


def styled(text: str, tone: str) -> Text:
    """Return a cell as it is shown."""
    if not text.isprintable():
        text = " ".join(printable(text).splitlines())
    return Text(text, STYLES.get(tone, ""))


def state(name: str) -> Text:
    """Return a job's state, or how a host is, in its colour."""
    return styled(name, TONES.get(name) or host_condition.tone(name))
