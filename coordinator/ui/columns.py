"""Tables that fit the window: what matters least goes first, and nothing is cut to a stump."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.containers import Lines
from rich.segment import Segment
from rich.table import Table
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


class _Lined(Table):
    """A table of which rich draws the head, and each row of `body` is put together as a line.

    rich takes half a millisecond for a row of ten cells, and of ten thousand hosts 5 s.
    """

    def __init__(self, **named: Any) -> None:
        """See rich's."""
        super().__init__(**named)
        self.body: list[list[Text]] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the head and the lines; rich draws all of it where a row may not be one line."""
        wide = _total(column.width or 0 for column in self.columns) > options.max_width
        wraps = not all(column.no_wrap for column in self.columns)
        if wide or wraps or self.caption or not all(map(_is_one_line, self.body)):
            for row in self.body:
                self.add_row(*row)
            self.body = []
        yield from super().__rich_console__(console, options)
        for row in self.body if self.columns else ():
            yield from self._line(console, row)

    def _line(self, console: Console, row: Sequence[Text]) -> Iterator[Segment]:
        line = ""
        for index, (cell, column) in enumerate(zip(row, self.columns)):
            width, used = column.width or 0, cell.cell_len
            if used > width:
                cell = cell.copy()  # noqa: PLW2901 - it is the table's own
                cell.truncate(width, overflow="ellipsis")
                used = cell.cell_len
            blanks = " " * (width - used)
            before, after = (blanks, "") if column.justify == "right" else ("", blanks)
            line += " " * GAP * (index > 0) + before
            if cell.style or cell.spans:
                yield Segment(line)
                yield from Text().append_text(cell).render(console)
                line = after
            else:
                line += cell.plain + after
        yield Segment(line)
        yield Segment.line()


def _is_one_line(row: Iterable[Text]) -> bool:
    return all(cell.plain.isprintable() for cell in row)


def make_table(columns: Sequence[Column], rows: Iterable[Sequence[Any]], window: int) -> Table:
    """Return a plain table that is no wider than `window`, in characters."""
    made = _Lined(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, 1, 0, 0),
        collapse_padding=True,
    )
    cells = [[_cell(cell, one) for cell, one in zip(row, columns)] for row in rows]
    widths = fit(columns, cells, window)
    for index, column in enumerate(columns):
        if index in widths:
            made.add_column(
                column.title,
                justify="right" if column.right else "left",
                no_wrap=not column.wrap,
                overflow="fold" if column.wrap else "ellipsis",
                width=widths[index],
            )
    made.body = [[row[index] for index in widths] for row in cells]
    return made


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
    return (Sentence if column.wrap else Text)(told(str(value)))
