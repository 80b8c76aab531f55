"""Tables of jobs and hosts: AG Grid with the columns of `fleet_columns`, fed with what changes.

A grid hides columns when it is narrower than their `from` (pixels), those of the highest rank
first, so that the same table fits a phone. The style sheet sets the height of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nicegui import ui

from coordinator.client.rows import Delta, Row
from coordinator.ui.fleet_columns import JOBS, FleetColumn
from coordinator.web.parts import Tag

CHAR_PX: Final = 7
CELL_PX: Final = 26  # around what a cell says
FLEX_CHARS: Final = 8
_BARS_PX: Final = {"percent": 100, "held": 108, "memory": 124, "share": 108}
# Kinds whose cells hold more than text, or which may be cut.
_PX: Final = {
    "job": 130, "doing": 117, "left": 84, "metric": 128, "power": 78, "state": 104, "place": 104,
    "condition": 104, "loss": 84, **_BARS_PX,
}  # fmt: skip
_COMPARED: Final = {"state": "byActivity", "took": "byTook"}  # what is at work, one looks for
ATTEMPTS: Final = tuple(
    next(one for one in JOBS if one.key == key)
    for key in ("name", "attempt", "host", "state", "started", "took")
)


def definitions(
    columns: Sequence[FleetColumn], sort: str, order: str = "asc"
) -> list[dict[str, Any]]:
    """Return columns as AG Grid has them; that of the key `sort` is sorted by at first."""
    return [
        {
            "headerName": one.title,
            "field": f"{one.key}_used" if one.kind == "memory" else one.key,
            "colId": one.key,
            "sortable": True,
            "resizable": True,
            "minWidth": _px(one),
            ":comparator": f"fleet.{_COMPARED.get(one.kind, 'nullsLast')}",
            "context": {"from": sum(_px(each) for each in columns if each.rank <= one.rank)},
            "sort": order if one.key == sort else None,
            **({"flex": flex} if (flex := _flex(one)) else {"width": _px(one)}),
            **({"type": "rightAligned"} if one.right and one.kind not in _BARS_PX else {}),
            # A cell shows more fields than the one that it is sorted by.
            **({} if one.kind == "text" else _drawn(one.kind)),
        }
        for one in columns
    ]


def _drawn(kind: str) -> dict[str, Any]:
    return {":cellRenderer": f"fleet.cells.{kind}", ":equals": "() => false"}


def _flex(column: FleetColumn) -> int:
    """Return the column's share of what is left; a state may say more where it has room."""
    return 3 if column.kind == "state" else column.most // FLEX_CHARS


def _px(column: FleetColumn) -> int:
    return _PX.get(column.kind) or CHAR_PX * column.width + CELL_PX


def as_rows(most: int) -> str:
    """Return the height, as CSS, of a table that is as high as its rows, at most so many.

    The browser counts them, in `--rows`, and knows the height of a scrollbar below them.
    """
    rows = f"clamp(1, var(--rows), {most}) * var(--table-row)"
    return f"calc(var(--table-head) + {rows} + var(--table-bar, 0px) + 2px)"


class Grid(ui.aggrid):
    """A table that sends only changed rows after the first load.

    NiceGUI would make it anew, with the rows that it began with, for each change of its element.
    """

    def update(self) -> None:
        """Send nothing."""


def grid(
    label: str, columns: Sequence[FleetColumn], rows: list[Row], *, height: str, empty: str,
    sort: str, order: str = "asc", is_filtered: bool = False, row_id: str = "(p) => p.data.id",
) -> Grid:  # fmt: skip
    """Return a table. `label` is its name for screen readers, `empty` what is said of no rows.

    `is_filtered`: it shows what passes `fleet.filter`. `row_id` is JavaScript.
    """
    options: dict[str, Any] = {
        "columnDefs": definitions(columns, sort, order),
        "rowData": rows,
        ":getRowId": row_id,
        ":onGridReady": "fleet.ready",
        ":onGridSizeChanged": "(e) => fleet.fit(e.api)",
        ":onCellKeyDown": "fleet.open",
        ":onModelUpdated": "(e) => fleet.changed(e.api)",
        "animateRows": False,
        "ensureDomOrder": True,
        ":tabToNextCell": "fleet.leave",
        ":tabToNextHeader": "fleet.leave",
        "enableCellTextSelection": True,
        "suppressDragLeaveHidesColumns": True,
        "suppressMovableColumns": True,
        "suppressNoRowsOverlay": True,
    }
    if is_filtered:
        options[":isExternalFilterPresent"] = "fleet.isFiltered"
        options[":doesExternalFilterPass"] = "fleet.passes"
    with Tag("div", classes="rows"):
        made = Grid(options, theme="balham", auto_size_columns=False)
        made.options["context"] = {"label": label, "element": made.html_id}
        made.style(f"--rows: {len(rows)}; height: {height}")
        Tag("p", empty, "empty", role="status")
    return made


def feed(table: Grid, delta: Delta) -> None:
    """Tell a table what has changed."""
    if delta:
        removed = [{"id": key} for key in delta.remove]
        table.run_grid_method(
            "applyTransaction", {"add": delta.add, "update": delta.update, "remove": removed}
        )


class Part:
    """The rows of a table that fit a condition, for a grid that shows those alone."""

    def __init__(self, fits: Any, rows: list[Row]) -> None:
        self._fits = fits
        self.rows = {row["id"]: row for row in rows if fits(row)}

    def take(self, delta: Delta) -> Delta:
        """Return what a change of the whole is for this part."""
        made = Delta([], [], [])
        for row in [*delta.add, *delta.update]:
            here = row["id"] in self.rows
            if self._fits(row):
                (made.update if here else made.add).append(row)
                self.rows[row["id"]] = row
            elif here:
                made.remove.append(row["id"])
        made.remove.extend(key for key in delta.remove if key in self.rows)
        for key in made.remove:
            self.rows.pop(key, None)
        return made
