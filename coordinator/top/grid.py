"""A table of many rows of which only those on the screen are made.

Textual's own table keeps every cell; this one is handed all rows at each change, and asks the
columns for what is visible. The selection stays with its row, however the rows move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from coordinator.top.layout import PLAIN, Cell, Column, fit, gap, padded


class Line(Protocol):
    """What a row has to have."""

    @property
    def key(self) -> str:
        """What it is known by."""

    @property
    def remark(self) -> Cell | None:
        """What stands in place of the columns that may be left out; none: they are shown."""


L = TypeVar("L", bound=Line)

HOSTS: Final = "hosts"
JOBS: Final = "jobs"
ABOVE: Final = 2  # lines above the rows: what it is, and the titles of the columns


class Grid(ScrollView, Generic[L], can_focus=True):
    """Rows of one kind: hosts, or jobs.

    `orders` are the ways to sort them by name, `kinds` the states to filter them by, `is_of` and
    `bears` tell whether a row is of such a kind, or bears a text.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"grid--{name}"
        for name in ("name", "title", "cursor", "good", "busy", "warn", "bad", "dim")
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "move(-1000000)", "First", show=False),
        Binding("end,G", "move(1000000)", "Last", show=False),
    ]

    class Opened(Message):
        """A row was clicked that was selected before."""

    def __init__(
        self,
        noun: str,
        columns: Sequence[Column[L]],
        orders: Mapping[str, Callable[[L], Any]],
        kinds: Sequence[str],
        is_of: Callable[[L, str], bool],
        bears: Callable[[L, str], bool],
        **options: Any,
    ) -> None:
        """Begin empty; `noun` is what the rows are called, in the plural."""
        super().__init__(**options)
        self._noun = noun
        self._columns = columns
        self._orders = orders
        self._kinds = kinds
        self._is_of = is_of
        self._bears = bears
        self._all: Sequence[L] = ()
        self._shown: list[L] = []
        self._fitted: list[tuple[Column[L], int]] = []
        self._key = ""  # of the row that was chosen; none: the first one is as good as any
        self.cursor = 0
        self.order = next(iter(orders))
        self.kind = kinds[0]
        self.text = ""

    @property
    def selected(self) -> L | None:
        """The row that keys act on, if there is any."""
        return self._shown[self.cursor] if self._shown else None

    @property
    def shown(self) -> Sequence[L]:
        """The rows in their order, without those that are filtered out."""
        return self._shown

    def show(self, rows: Sequence[L]) -> None:
        """Take how things are now."""
        self._all = rows
        self._sort_out()

    def next_kind(self) -> None:
        """Show the rows of the next state alone."""
        self.kind = _after(self._kinds, self.kind)
        self._sort_out()

    def next_order(self) -> None:
        """Sort by the next way there is."""
        self.order = _after(list(self._orders), self.order)
        self._sort_out()

    def look_for(self, text: str) -> None:
        """Show the rows alone that bear a text; an empty one: all."""
        self.text = text.strip().lower()
        self._sort_out()

    def title(self) -> str:
        """Say what is shown, of how many, and how."""
        parts = [f"{self._noun.capitalize()} {len(self._shown)}"]
        if len(self._shown) != len(self._all):
            parts[0] += f" of {len(self._all)}"
        if self.kind != self._kinds[0]:
            parts.append(f"only {self.kind}")
        if self.text:
            parts.append(f"with “{self.text}”")
        return " · ".join([*parts, f"by {self.order}"])

    def _sort_out(self) -> None:
        text, kind = self.text, self.kind
        found = [
            row for row in self._all
            if self._is_of(row, kind) and (not text or self._bears(row, text))
        ]  # fmt: skip
        self._shown = sorted(found, key=self._orders[self.order])
        places = (index for index, row in enumerate(self._shown) if row.key == self._key)
        self.cursor = next(places, max(0, min(self.cursor, len(self._shown) - 1)))
        if self._key:
            self._note_key()
        self._measure()

    def _note_key(self) -> None:
        selected = self.selected
        self._key = selected.key if selected else ""

    def _measure(self) -> None:
        window = self.scrollable_content_region.width
        self._fitted = fit(self._columns, window)
        self.virtual_size = Size(window, len(self._shown) + ABOVE)
        self.refresh()

    def on_resize(self, _event: events.Resize) -> None:
        """Give the columns the room that there is."""
        self._measure()
        self._keep_in_sight()

    def on_focus(self) -> None:
        """Show whose keys these are."""
        self.refresh()

    def on_blur(self) -> None:
        """Likewise."""
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """Select a row; open it when it is selected already."""
        index = event.y + self.scroll_offset.y - ABOVE
        if event.y < ABOVE or not 0 <= index < len(self._shown):
            return
        if index == self.cursor and event.chain > 1:
            self.post_message(self.Opened())
        self._select(index)

    def action_move(self, by: int) -> None:
        """Select the row so many further down."""
        self._select(self.cursor + by)

    def action_page(self, by: int) -> None:
        """Select the row so many screens further down."""
        self._select(self.cursor + by * max(1, self.size.height - ABOVE - 1))

    def _select(self, index: int) -> None:
        self.cursor = max(0, min(index, len(self._shown) - 1))
        self._note_key()
        self._keep_in_sight()
        self.refresh()

    def _keep_in_sight(self) -> None:
        height = max(1, self.scrollable_content_region.height - ABOVE)
        top = self.scroll_offset.y
        wanted = min(max(top, self.cursor - height + 1), self.cursor)
        if wanted != top:
            self.scroll_to(y=wanted, animate=False, force=True)

    # What is drawn

    def render_line(self, y: int) -> Strip:
        """Return one line of the screen: what this is, the titles, the rows in sight."""
        window = self.scrollable_content_region.width
        plain = self.rich_style
        if y < ABOVE:
            style = plain + self._style("title" if y else "name")
            cells = [(column.title, PLAIN) for column, _ in self._fitted]
            text = "".join(piece for piece, _ in self._joined(cells)[:-1]) if y else self.title()
            return Strip([Segment(padded(text, window), style)])
        index = y - ABOVE + self.scroll_offset.y
        if index >= len(self._shown):
            return Strip.blank(window, plain)
        is_cursor = index == self.cursor and self.has_focus
        if is_cursor:
            plain += self._style("cursor")
        pieces = self._joined(self._cells(self._shown[index]))
        segments = [
            Segment(text, plain if not style or is_cursor else plain + self._style(style))
            for text, style in pieces
        ]
        return Strip(segments).adjust_cell_length(window, plain)

    def _cells(self, row: L) -> list[Cell]:
        remark = row.remark
        if remark is None:
            return [column.cell(row, width) for column, width in self._fitted]
        return [
            column.cell(row, width) for column, width in self._fitted if not column.left_out
        ] + [remark]

    def _joined(self, cells: Sequence[Cell]) -> list[Cell]:
        between = " " * gap(self.scrollable_content_region.width)
        pieces: list[Cell] = []
        last = len(self._fitted) - 1
        for index, ((column, width), (text, style)) in enumerate(zip(self._fitted, cells)):
            if index == len(cells) - 1 and index < last:  # a remark has the room of what follows
                room = sum(each for _, each in self._fitted[index:])
                pieces.append((padded(text, room + len(between) * (last - index)), style))
            else:
                pieces.append((padded(text, width, right=column.right), style))
            pieces.append((between, PLAIN))
        return pieces

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"grid--{name}", partial=True)


def _after(names: Sequence[str], name: str) -> str:
    return names[(names.index(name) + 1) % len(names)]
