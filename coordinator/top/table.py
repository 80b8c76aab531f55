"""The table of hosts, or of jobs: Textual's `DataTable`, whose rows are drawn when in sight.

The selection stays with its row, however the rows move.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from broker.wrapping import printable
from coordinator.client.rows import Row
from coordinator.ui.fitted_table import fit
from coordinator.ui.fleet_columns import PLAIN, Cell, FleetColumn

ABOVE: Final = 2  # lines above the rows: what it is, and the titles of the columns
FEW: Final = 100  # rows that are removed one by one
_COLUMN: Final = "row"


@dataclass(frozen=True, slots=True)
class Kind:
    """What a table shows.

    `noun` is what its rows are called, `orders` are the ways to sort them by name, `kinds` the
    states to filter them by. `words` are what one may look for a row by, `remark` what stands in
    place of the columns that may be left out; none: they are shown.
    """

    noun: str
    columns: Sequence[FleetColumn]
    orders: Mapping[str, Callable[[Row], Any]]
    kinds: Mapping[str, Callable[[Row], bool]]
    words: Callable[[Row], Sequence[str]]
    remark: Callable[[Row], Cell | None]


class FleetTable(DataTable[Any]):
    """Rows of one kind. Each is one cell, so that a remark may take the place of columns."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "app.show", "Show"),
        Binding("k", "cursor_up", "Up", show=False),
        Binding("j", "cursor_down", "Down", show=False),
        Binding("home,g", "scroll_top", "First", show=False),
        Binding("end,G", "scroll_bottom", "Last", show=False),
    ]

    def __init__(self, kind: Kind) -> None:
        super().__init__(cursor_type="row", header_height=ABOVE, cell_padding=0, id=kind.noun)
        self._of = kind
        self._all: Collection[Row] = ()
        self._key = ""  # of the row that was chosen; none: the first one is as good as any
        self._fitted: list[tuple[FleetColumn, int]] = []
        self._width = 0
        self.shown: Sequence[Row] = ()
        self.order, self.kind = next(iter(kind.orders)), next(iter(kind.kinds))
        self.text = ""
        self.colours: Mapping[str, str] = {}

    @property
    def selected(self) -> Row | None:
        """The row that keys act on, if there is any."""
        return self.shown[self.cursor_row] if self.cursor_row < len(self.shown) else None

    def show(self, rows: Collection[Row]) -> None:
        """Take how things are now."""
        self._all = rows
        self._sort_out()

    def next_kind(self) -> None:
        """Show the rows of the next state alone."""
        self.kind = _after([*self._of.kinds], self.kind)
        self._sort_out()

    def next_order(self) -> None:
        """Sort by the next way there is."""
        self.order = _after([*self._of.orders], self.order)
        self._sort_out()

    def look_for(self, text: str) -> None:
        """Show the rows alone that bear a text; an empty one: all."""
        self.text = text.strip().lower()
        self._sort_out()

    def show_all(self) -> None:
        """Show the rows of every state, whatever they bear."""
        self.kind = next(iter(self._of.kinds))
        self.look_for("")

    def title(self) -> str:
        """Say what is shown, of how many, and how."""
        parts = [f"{self._of.noun.capitalize()} {len(self.shown)}"]
        if len(self.shown) != len(self._all):
            parts[0] += f" of {len(self._all)}"
        if self.kind != next(iter(self._of.kinds)):
            parts.append(f"only {self.kind}")
        if self.text:
            parts.append(f"with “{self.text}”")
        return " · ".join([*parts, f"by {self.order}"])

    def on_resize(self, _event: events.Resize) -> None:
        """Give the columns the room that there is."""
        self._fill()

    def row_text(self, index: int) -> Text:
        """Return a row as it is drawn."""
        if index >= len(self.shown):
            return Text()
        row = self.shown[index]
        remark = self._of.remark(row)
        cells = [
            column.cell(row, width)
            for column, width in self._fitted
            if remark is None or not column.live
        ]
        return self._joined(cells if remark is None else [*cells, remark])

    def _sort_out(self) -> None:
        before = self.selected
        if before is not None and (self.cursor_row or self._key):
            self._key = before["id"]
        is_of = self._of.kinds[self.kind]
        found = [row for row in self._all if is_of(row) and (not self.text or self._bears(row))]
        self.shown = sorted(found, key=self._of.orders[self.order])
        self._fill()

    def _bears(self, row: Row) -> bool:
        words = (word.lower() for word in self._of.words(row))
        return row["id"].startswith(self.text) or any(self.text in word for word in words)

    def _fill(self) -> None:
        """Have as many rows as are shown, with the cursor at the chosen one, and draw them."""
        window = self.scrollable_content_region.width
        if not window:
            return
        cursor, count = self.cursor_row, len(self.shown)
        places = (index for index, row in enumerate(self.shown) if row["id"] == self._key)
        cursor = next(places, max(0, min(cursor, count - 1)))
        if window != self._width:
            self._width, self._fitted = window, fitted(self._of.columns, window)
            self.clear(columns=True)
            self.add_column("", width=window, key=_COLUMN)
        if self.row_count > count + FEW:
            self.clear()
        while self.row_count > count:
            self.remove_row(str(self.row_count - 1))
        for index in range(self.row_count, count):
            self.add_row(_Row(self, index, window), key=str(index))
        titles = self._joined([(column.title.upper(), PLAIN) for column, _ in self._fitted])
        name = Text(padded(self.title(), window), "bold")
        (column,) = self.columns.values()
        column.label = Text("\n").join([name, titles])
        self.move_cursor(row=cursor, animate=False)
        self.notify_style_update()

    def _joined(self, cells: Sequence[Cell]) -> Text:
        between = " " * gap(self._width)
        line = Text(no_wrap=True)
        last = len(self._fitted) - 1
        for index, ((column, width), (text, style)) in enumerate(zip(self._fitted, cells)):
            room = width
            if index == len(cells) - 1 and index < last:  # a remark has the room of what follows
                room = sum(each for _, each in self._fitted[index:]) + len(between) * (last - index)
            shown = padded(printable(text), room, right=column.right and room == width)
            line.append(between * (index > 0)).append(shown, self.colours.get(style, ""))
        return line


@dataclass(frozen=True, slots=True)
class _Row:
    """The row at a place of a table, made when it is drawn."""

    table: FleetTable
    index: int
    width: int

    def __rich_measure__(self, _console: Console, _options: ConsoleOptions) -> Measurement:
        return Measurement(self.width, self.width)

    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> RenderResult:
        yield self.table.row_text(self.index)


def fitted(columns: Sequence[FleetColumn], window: int) -> list[tuple[FleetColumn, int]]:
    """Return the columns that a window of so many characters has room for, with their widths."""
    sizes = [(column.width, max(column.width, column.most)) for column in columns]
    widths = fit(columns, sizes, window, gap(window))
    return [(columns[index], width) for index, width in widths.items()]


def gap(window: int) -> int:
    """Return how many characters are between two columns."""
    return 1 if window < 100 else 2


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return a text of exactly so many characters' room; what is cut off is replaced by `…`."""
    have = cell_len(text)
    if have > width:
        return set_cell_size(text, max(0, width - 1)) + "…" if width else ""
    return " " * (width - have) + text if right else text + " " * (width - have)


def _after(names: Sequence[str], name: str) -> str:
    return names[(names.index(name) + 1) % len(names)]
