"""Tables that fit the window: what matters least goes first, and nothing is cut to a stump."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.containers import Lines
from rich.text import Text

from broker.sentences import held
from coordinator.ui.words import told

GAP: Final = 2  # columns of the screen between two of a table
HELD: Final = "\ue000"  # a blank at which no line is broken; rich breaks at any that there is
LEAST: Final = 3
_NOTHING: Final = frozenset({"", "-"})


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    `rank` 0 is always shown; of the others the highest goes first where the window is narrow, and
    before any of them one that says nothing. `least` is to how many characters it may be cut, none:
    it is whole or not there. `wrap`: it goes on in the next line rather than being cut.
    """

    title: str
    rank: int = 0
    least: int | None = None
    right: bool = False
    wrap: bool = False


class Sentence(Text):
    """A text that is wrapped where `broker.sentences` allows it."""

    def wrap(self, console: Console, width: int, **options: Any) -> Lines:
        """Return the lines."""
        whole = self.copy()
        whole.plain = held(self.plain, HELD)
        lines = whole.wrap(console, width, **options)
        for line in lines:
            line.plain = line.plain.replace(HELD, " ")
        return lines


class Table:
    """Rows below titles, no wider than where they are drawn: see `Column`.

    rich's own takes half a millisecond for a row of ten cells, and of ten thousand hosts 5 s.
    """

    def __init__(self, columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> None:
        """Take values or texts."""
        self.columns = columns
        self.rows = [[_cell(cell, one) for cell, one in zip(row, columns)] for row in rows]
        self.caption = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        widths = fit(self.columns, self.rows, options.max_width)
        yield self._line([Text(column.title, "bold") for column in self.columns], widths)
        yield Text("─" * _total(widths.values()))
        wraps = any(self.columns[index].wrap for index in widths)
        for row in self.rows:
            if wraps:
                yield from self._wrapped(console, row, widths)
            else:
                yield self._line(row, widths)
        if self.caption:
            yield Text(self.caption, "dim italic")

    def _wrapped(
        self, console: Console, row: Sequence[Text], widths: Mapping[int, int]
    ) -> Iterator[Text]:
        """Yield the lines of a row, in which some cells go on."""
        parts = {
            index: row[index].wrap(console, width) if self.columns[index].wrap else [row[index]]
            for index, width in widths.items()
        }
        for number in range(max(map(len, parts.values()))):
            left = {index: lines[number] for index, lines in parts.items() if number < len(lines)}
            yield self._line([left.get(index, Text()) for index in range(len(row))], widths)

    def _line(self, row: Sequence[Text], widths: Mapping[int, int]) -> Text:
        line = Text(no_wrap=True, overflow="ellipsis")
        for place, (index, width) in enumerate(widths.items()):
            cell = row[index]
            used = cell.cell_len
            if used > width:
                cell = cell.copy()
                cell.truncate(width, overflow="ellipsis")
                used = cell.cell_len
            blanks = " " * (width - used)
            is_right = self.columns[index].right
            line.append(" " * GAP * (place > 0) + blanks * is_right)
            line.append_text(cell).append("" if is_right else blanks)
        return line


def fit(columns: Sequence[Column], cells: Sequence[Sequence[Text]], window: int) -> dict[int, int]:
    """Return the width of each column that is shown, by its place."""
    natural = [
        max([len(column.title), *(row[index].cell_len for row in cells)])
        for index, column in enumerate(columns)
    ]
    least = [
        width if column.least is None else min(width, max(column.least, len(column.title)))
        for column, width in zip(columns, natural)
    ]
    shown = list(range(len(columns)))
    for index in _first_to_go(columns, cells):
        if _total(least[one] for one in shown) <= window:
            break
        shown.remove(index)
    widths = {index: natural[index] for index in shown}
    while (excess := _total(widths.values()) - window) > 0:
        slack = {index: widths[index] - least[index] for index in shown}
        if not any(slack.values()):  # then the window is too narrow for anything
            slack = {index: widths[index] - LEAST for index in shown}
        index = max(slack, key=lambda one: (slack[one], one))
        if slack[index] <= 0:
            break
        widths[index] -= min(slack[index], max(1, excess // len(shown)))
    return widths


def _first_to_go(columns: Sequence[Column], cells: Sequence[Sequence[Text]]) -> list[int]:
    """Return the columns that may be left out: first those that say nothing, then by rank."""
    said = [any(row[index].plain not in _NOTHING for row in cells) for index in range(len(columns))]
    may_go = [index for index, column in enumerate(columns) if column.rank]
    return sorted(may_go, key=lambda index: (said[index], -columns[index].rank))


def _total(widths: Iterable[int]) -> int:
    each = list(widths)
    return sum(each) + GAP * (len(each) - 1)


def _cell(value: Any, column: Column) -> Text:
    if isinstance(value, Text):
        return value
    said = told(str(value))
    return Sentence(said) if column.wrap else Text(" ".join(said.splitlines()))
