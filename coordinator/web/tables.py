"""Tables of jobs and hosts: AG Grid with columns of ours, fed with what has changed.

A grid hides columns when it is narrower than their `from` (pixels), the least important first, so
that the same table fits a phone. The style sheet sets the height of the rows.
"""

from __future__ import annotations

from typing import Any

from nicegui import ui

from coordinator.client.rows import Delta, Row
from coordinator.web.parts import Tag


def _column(
    name: str, field: str, cell: str = "", *, from_px: int = 0, wide: int = 0, width: int = 0,
    right: bool = False, live: bool = False, sort: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return one column. `live`: its cell shows more fields than the one it is sorted by."""
    # Of jobs, what is at work is what one looks for.
    comparator = {"state": "byActivity", "took": "byTook"}.get(cell, "nullsLast")
    made: dict[str, Any] = {
        "headerName": name,
        "field": field,
        "colId": f"{field}-{cell}" if cell else field,
        "sortable": True,
        "resizable": True,
        "minWidth": width or 90,
        ":comparator": f"fleet.{comparator}",
        "context": {"from": from_px},
        "sort": "asc" if cell == "state" else sort,
    }
    made |= {"flex": wide} if wide else {"width": width or 100}
    if cell:
        made[":cellRenderer"] = f"fleet.cells.{cell}"
    if live:
        made[":equals"] = "() => false"
    if right:
        made["type"] = "rightAligned"
    return made


def job_columns() -> list[dict[str, Any]]:
    """Return the columns of the page of jobs."""
    return [
        _column("Job", "name", "job", wide=5, width=150),
        _column("State", "state", "state", wide=3, width=104, live=True),
        _column("Host", "host", "host", wide=2, width=110, from_px=560),
        _column("Progress", "share", "share", wide=2, width=100, live=True, from_px=480),
        _column("Model", "model", wide=1, width=124, from_px=870),
        _column("Mode", "mode", width=90, from_px=960),
        _column("Loss", "loss", "loss", width=90, right=True, from_px=1310),
        _column("Metric", "value", "metric", wide=2, width=164, live=True, from_px=750),
        _column("Began", "started", "ago", width=104, from_px=640),
        _column("Took", "finished", "took", width=80, live=True, from_px=1040),
        _column("Ends", "ends", "ahead", width=96, from_px=1140),
        _column("Priority", "priority", width=84, right=True, from_px=1400),
    ]


def running_columns() -> list[dict[str, Any]]:
    """Return the columns of what runs now."""
    return [
        _column("Job", "name", "job", wide=3, width=120),
        _column("Progress", "share", "share", wide=2, width=108, live=True),
        _column("Ends", "ends", "ahead", width=96, sort="asc"),
        _column("Host", "host", "host", wide=2, width=110, from_px=520),
        _column("Epoch", "epoch", wide=1, width=112, from_px=760),
        _column("Loss", "loss", "loss", width=90, right=True, from_px=640),
        _column("Began", "started", "ago", width=104, from_px=860),
    ]


def host_columns() -> list[dict[str, Any]]:
    """Return the columns of the hosts."""
    return [
        _column("Host", "id", "host", wide=2, width=104, sort="asc"),
        _column("State", "state", "condition", wide=1, width=126, live=True),
        _column("Job", "job", "current", wide=3, width=108, live=True),
        _column("Progress", "share", "held", wide=1, width=108, from_px=600),
        _column("CPU", "cpu", "percent", wide=1, width=100, from_px=760),
        _column("RAM, GiB", "ram_used", "ram", wide=1, width=124, live=True, from_px=860),
        _column("GPU", "gpu", "percent", wide=1, width=100, from_px=960),
        _column("VRAM, GiB", "vram_used", "vram", wide=1, width=124, live=True, from_px=1060),
        _column("Power", "power", "power", width=78, right=True, from_px=1160),
        _column("Heard", "seen", "ago", width=104, from_px=700),
    ]


def attempt_columns() -> list[dict[str, Any]]:
    """Return the columns of the timeline's attempts."""
    return [
        _column("Job", "name", "job", wide=3, width=130),
        _column("Attempt", "attempt", width=84, right=True, from_px=640),
        _column("Host", "host", "host", wide=2, width=104),
        _column("State", "state", "fate", wide=1, width=104),
        _column("Began", "started", "ago", width=104, sort="desc", from_px=450),
        _column("Took", "finished", "took", width=80, live=True, from_px=540),
    ]


def as_rows(most: int) -> str:
    """Return the height, as CSS, of a table that is as high as its rows, at most so many.

    The browser counts them, in `--rows`.
    """
    return f"calc(var(--table-head) + clamp(1, var(--rows), {most}) * var(--table-row) + 2px)"


class Grid(ui.aggrid):
    """A table that sends only changed rows after the first load.

    NiceGUI would make it anew, with the rows that it began with, for each change of its element.
    """

    def update(self) -> None:
        """Send nothing."""


def grid(
    label: str, columns: list[dict[str, Any]], rows: list[Row], *, height: str, empty: str,
    is_filtered: bool = False, row_id: str = "(p) => p.data.id",
) -> Grid:  # fmt: skip
    """Return a table. `label` is its name for screen readers, `empty` what is said of no rows.

    `is_filtered`: it shows what passes `fleet.filter`. `row_id` is JavaScript.
    """
    options: dict[str, Any] = {
        "columnDefs": columns,
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
        """Begin with these."""
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
