"""The jobs on the screen: which, in which order, and what is said in place of live columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from coordinator.client.mirror import Snapshot
from coordinator.client.rows import HELD, Row
from coordinator.jobs import curve
from coordinator.top.table import Kind
from coordinator.ui import words as said
from coordinator.ui.fleet_columns import BAD, DIM, JOBS, PLAIN, WARN, Cell, shown, took
from coordinator.ui.words import NO_HOST

_SAID_TWICE: Final = 4  # from this rank on
_HOPELESS: Final = "no known host can; why: Enter, 3"  # whole in a window of 80 columns


def with_losses(row: Row, seen: Snapshot) -> Row:
    """Return a job's row with the losses of its curve: on what is held out, where it is known."""
    if row["id"] not in seen.curves:
        return row
    found = curve.of(seen.jobs[row["id"]], seen.curves)
    points = found.points if found else ()
    held_out = [point.val_loss for point in points if point.val_loss is not None]
    trained = [point.train_loss for point in points if point.train_loss is not None]
    return row | {"losses": held_out or trained}


def remark(row: Row) -> Cell | None:
    """Return what is said of a job that has neither progress nor a curve."""
    ran = f"took {text}" if (text := took(row)) else ""
    match row["state"]:
        case "failed":
            return row["error"], BAD
        case "completed":
            metric, mark = f"{row['metric']} {row['score']}".strip(), row["mark"]
            return ", ".join(filter(None, (metric, mark, ran))), BAD if mark else PLAIN
        case "cancelled":
            return ran, DIM
        case "pending" if not row["planned"]:
            return "no longer in the manifest", DIM
        case "pending" if row["waits"]:
            return row["waits"], PLAIN
        case "claimed" | "running" if row["waits"]:
            return row["waits"], WARN
        case "pending":
            return (_HOPELESS, BAD) if row["unplaceable"] else ("", DIM)
    return None


def words(row: Row) -> Sequence[str]:
    """Return what one may look for a job by."""
    hopeless = NO_HOST if row["unplaceable"] else ""
    keys = ("name", "model", "mode", "program", "host", "error")
    return (*(row[key] for key in keys), hopeless)


def by_activity(row: Row) -> tuple[Any, ...]:
    """Return the sort key: what runs, what waits in claim order, then the newest end first."""
    ended = row["finished"] or 0
    return said.by_activity(row["state"], ended, row["priority"], row["created"] or 0, row["name"])


ORDERS: Final[Mapping[str, Callable[[Row], Any]]] = {
    "activity": by_activity,
    "name": lambda row: row["name"],
    "host": lambda row: (not row["host"], row["host"], row["name"]),
    "newest": lambda row: (-(row["finished"] or row["started"] or 0), by_activity(row)),
}


def _is(*states: str) -> Callable[[Row], bool]:
    return lambda row: row["state"] in states


# What the filter by state leads through.
KINDS: Final[Mapping[str, Callable[[Row], bool]]] = {
    "all": lambda _: True,
    "active": _is(*HELD),
    **{state: _is(state) for state in ("pending", "failed", "completed", "cancelled")},
}
# A remark has the room of the live columns. These come last, and go after what remarks say as well.
COLUMNS: Final = sorted(
    (
        one if one.live or one.rank < _SAID_TWICE else replace(one, rank=one.rank + _SAID_TWICE)
        for one in shown(JOBS, "top")
    ),
    key=lambda column: column.live,
)
TABLE: Final = Kind("jobs", COLUMNS, ORDERS, KINDS, words, remark)
