"""The hosts on the screen: which, in which order, and what each column says of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from coordinator.client.rows import Row
from coordinator.top.layout import (
    BAD,
    BUSY,
    DIM,
    GOOD,
    NOTHING,
    PLAIN,
    WARN,
    Cell,
    Column,
    meter,
    used,
)
from coordinator.top.table import Kind
from coordinator.ui.words import ago, told

# What the filter by state leads through.
KINDS: Final[Mapping[str, Callable[[Row], bool]]] = {
    "all": lambda _: True,
    "busy": lambda row: row["online"] and row["jobs"] > 0,
    "idle": lambda row: row["online"] and not row["jobs"],
    "barred": lambda row: bool(row["barred"]),
    "away": lambda row: not row["online"],
}
_TROUBLE: Final = (BAD, WARN, DIM, BUSY, GOOD)
ORDERS: Final[Mapping[str, Callable[[Row], Any]]] = {
    "name": lambda row: row["id"],
    "use": lambda row: (-(row["gpu"] or 0.0), -(row["cpu"] or 0.0), row["id"]),
    "trouble": lambda row: (_TROUBLE.index(row["tone"]), row["id"]),
}


def words(row: Row) -> Sequence[str]:
    """Return what one may look for a host by."""
    return (row["id"], row["state"], row["job"], row["barred"], row["device"])


def _at_work(row: Row, _width: int) -> Cell:
    if row["job"]:
        more = f" and {row['jobs'] - 1} more" if row["jobs"] > 1 else ""
        return f"{row['job']}{more}", PLAIN
    if row["barred"]:
        return told(row["barred"]), WARN
    if row["online"]:
        return "ending" if row["ending"] else "idle", DIM
    if row["seen"] is None:
        return "never seen", DIM
    return f"seen {ago(datetime.fromtimestamp(row['seen'] / 1000, UTC).isoformat())}", DIM


def _figure(key: str, form: str) -> Callable[[Row, int], Cell]:
    return lambda row, _: NOTHING if row[key] is None else (form.format(row[key]), PLAIN)


def _meter(key: str, rank: int) -> Column:
    def cell(row: Row, width: int) -> Cell:
        return meter(row[key], width)

    return Column(key.upper(), 4, cell, right=True, most=15, rank=rank)


def _memory(key: str, width: int, rank: int) -> Column:
    def cell(row: Row, _: int) -> Cell:
        return used(row[f"{key}_used"], row[f"{key}_total"])

    return Column(key.upper(), width, cell, right=True, rank=rank)


COLUMNS: Final = (
    Column("HOST", 13, lambda row, _: (row["id"], PLAIN), most=24),
    Column("STATUS", 10, lambda row, _: (row["state"], row["tone"])),
    _meter("cpu", rank=1),
    Column("LOAD", 5, _figure("load", "{:.1f}"), right=True, rank=6),
    _memory("ram", 9, rank=3),
    _meter("gpu", rank=2),
    _memory("vram", 8, rank=4),
    Column("POWER", 5, _figure("power", "{:.0f}W"), right=True, rank=5),
    Column("DEVICE", 16, lambda row, _: (row["device"], DIM), most=24, rank=7),
    Column("JOB", 15, _at_work, most=80),
)
TABLE: Final = Kind("hosts", COLUMNS, ORDERS, KINDS, words, lambda _: None)
