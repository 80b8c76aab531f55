"""The hosts on the screen: which, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from coordinator.client.rows import Row
from coordinator.top.table import Kind
from coordinator.ui.fleet_columns import BAD, BUSY, DIM, GOOD, HOSTS, WARN, shown

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
    return (row["id"], row["state"], row["doing"], row["barred"], row["device"])


TABLE: Final = Kind("hosts", shown(HOSTS, "top"), ORDERS, KINDS, words, lambda _: None)
