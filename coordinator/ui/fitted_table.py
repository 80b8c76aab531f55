"""Tables that fit the window: what matters least goes first, and nothing is cut to a stump."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.containers import Lines
from rich.text import Span, Text

from broker.wrapping import held, printable

GAP: Final = 2  # columns of the screen between two of a table
HELD: Final = "\ue000"  # a blank at which no line is broken; rich breaks at any that there is
LEAST: Final = 3
_NOTHING: Final = frozenset({"", "-"})


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    `rank` 0 is always shown; of the others the highest goes first where the window is narrow, and
    one that says nothing is left out. `least` is to how many characters it may be cut, none: it is
    whole or not there. `wrap`: it goes on in the next line rather than being cut.
    """

    title: str
    rank: int = 0
    least: int | None = None
    right: bool = False
    wrap: bool = False


class Sentence(Text):
    """A text that is wrapped where `broker.wrapping` allows it."""

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
        self.columns = columns
        self.rows = [[_cell(cell, one) for cell, one in zip(row, columns)] for row in rows]
        self.caption = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._widths(options.max_width)
        yield self._line([Text(column.title.upper(), "bold") for column in self.columns], widths)
        yield Text("─" * (sum(widths.values()) + GAP * (len(widths) - 1)))
        wraps = any(self.columns[index].wrap for index in widths)
        for row in self.rows:
            if wraps:
                yield from self._wrapped(console, row, widths)
            else:
                yield self._line(row, widths)
        if self.caption:
            yield Text(self.caption, "dim italic")

    def _widths(self, window: int) -> dict[int, int]:
        """Return the widths of those columns that say something, or that are always shown."""
        kept, sizes = [], []
        for index, column in enumerate(self.columns):
            cells = [row[index] for row in self.rows]
            if column.rank and all(cell.plain in _NOTHING for cell in cells):
                continue
            natural = max(len(column.title), *(cell.cell_len for cell in cells), 0)
            least = natural if column.least is None else max(column.least, len(column.title))
            kept.append(index)
            sizes.append((min(natural, least), natural))
        found = fit([self.columns[index] for index in kept], sizes, window)
        return {kept[place]: width for place, width in found.items()}

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
        parts: list[str] = []
        spans: list[Span] = []
        begin = 0
        for index, width in widths.items():
            cell = row[index]
            used = cell.cell_len
            if used > width:
                cell = cell.copy()
                cell.truncate(width, overflow="ellipsis")
                used = cell.cell_len
            blanks, text = " " * (width - used), cell.plain
            before, after = (blanks, "") if self.columns[index].right else ("", blanks)
            before = " " * GAP * bool(parts) + before
            begin += len(before)
            end = begin + len(text)
            spans += [Span(begin, end, cell.style)] if cell.style else []
            spans += [span.move(begin) for span in cell.spans]
            parts += [before, text, after]
            begin = end + len(after)
        return Text("".join(parts), no_wrap=True, overflow="ellipsis", spans=spans)


def fit(
    columns: Sequence[Column], sizes: Sequence[tuple[int, int]], window: int, gap: int = GAP
) -> dict[int, int]:
    """Return the width of each column that is shown, by its place.

    `sizes` are the least and the most characters of each. Whole columns go first, by rank.
    """
    widths = {index: least for index, (least, _) in enumerate(sizes)}

    def spare() -> int:
        return window - sum(widths.values()) - gap * (len(widths) - 1)

    for index in sorted(widths, key=lambda index: -columns[index].rank):
        if spare() < 0 and columns[index].rank:
            del widths[index]
    while spare() < 0 and max(widths.values()) > LEAST:  # then it is too narrow for anything
        widths[max(widths, key=lambda index: (widths[index], index))] -= 1
    for _ in range(spare()):
        growing = [index for index in widths if widths[index] < sizes[index][1]]
        if not growing:
            break
        widths[min(growing, key=lambda index: widths[index] / sizes[index][1])] += 1
    return widths


def _cell(value: Any, column: Column) -> Text:
    if isinstance(value, Text):
        return value
    said = printable(str(value))
    return Sentence(said) if column.wrap else Text(" ".join(said.splitlines()))
