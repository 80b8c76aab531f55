"""The jobs on the screen: which, in which order, and what each column says of one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from broker.sentences import span
from coordinator.client.rows import HELD, Row, took_s
from coordinator.client.seen import Snapshot
from coordinator.jobs import curve
from coordinator.jobs.curve import Curve
from coordinator.jobs.job_progress import left_words
from coordinator.jobs.set_aside import BELOW_CHANCE
from coordinator.top.layout import BAD, BUSY, DIM, GOOD, PLAIN, WARN, Cell, Column, bar, spark
from coordinator.top.table import Kind
from coordinator.ui.words import NO_HOST

STYLES: Final = {
    "pending": WARN,
    "claimed": BUSY,
    "running": BUSY,
    "completed": GOOD,
    "failed": BAD,
    "cancelled": DIM,
}
_HOPELESS: Final = "no known host can; why: Enter, 3"  # whole in a window of 80 columns
_TURNS: Final = ("running", "claimed", "pending")


def with_losses(row: Row, seen: Snapshot) -> Row:
    """Return a job's row with the losses of its curve, if it has any."""
    if row["id"] not in seen.curves:
        return row
    return row | {"losses": losses(curve.of(seen.jobs[row["id"]], seen.curves))}


def losses(found: Curve | None) -> list[float]:
    """Return the losses of a curve: on what is held out, where that is known."""
    points = found.points if found else ()
    held_out = [point.val_loss for point in points if point.val_loss is not None]
    return held_out or [point.train_loss for point in points if point.train_loss is not None]


def took(row: Row) -> str:
    """Return how long a job ran, as `fleet list` says it."""
    seconds = took_s(row, time.time())
    return "" if seconds is None else span(seconds)


def left(row: Row) -> str:
    """Return for how much longer a job trains, in a word or two."""
    if row["away"]:
        return "?"  # what its trainer said last is of no use
    return left_words(None if row["ends"] is None else row["ends"] / 1000 - time.time())


def remark(row: Row) -> Cell | None:
    """Return what is said of a job that has neither progress nor a curve."""
    ran = f"took {said}" if (said := took(row)) else ""
    match row["state"]:
        case "failed":
            return row["error"], BAD
        case "completed":
            auroc = f"AUROC {row['score']}" if row["metric"] == "auroc" else ""
            chance = BELOW_CHANCE if row["chance"] else ""
            return ", ".join(filter(None, (auroc, chance, ran))), BAD if chance else PLAIN
        case "cancelled":
            return ran, DIM
        case "pending" if not row["planned"]:
            return "no longer in the manifest", DIM
        case "pending" if row["waits"]:
            return row["waits"], PLAIN
        case "pending":
            return (_HOPELESS, BAD) if row["unplaceable"] else ("", DIM)
    return None


def words(row: Row) -> Sequence[str]:
    """Return what one may look for a job by."""
    hopeless = NO_HOST if row["unplaceable"] else ""
    return (row["name"], row["model"], row["mode"], row["host"], row["error"], hopeless)


def by_activity(row: Row) -> tuple[Any, ...]:
    """Return the sort key: what runs, what waits in claim order, then the newest end first."""
    turn = (-row["priority"], row["created"] or 0, row["name"])
    if row["state"] in _TURNS:
        return _TURNS.index(row["state"]), 0, *turn
    return len(_TURNS), -(row["finished"] or 0), *turn


def _newest(row: Row) -> tuple[Any, ...]:
    return -(row["finished"] or row["started"] or 0), by_activity(row)


ORDERS: Final[Mapping[str, Callable[[Row], Any]]] = {
    "activity": by_activity,
    "name": lambda row: row["name"],
    "host": lambda row: (not row["host"], row["host"], row["name"]),
    "newest": _newest,
}


def _is(*states: str) -> Callable[[Row], bool]:
    return lambda row: row["state"] in states


# What the filter by state leads through.
KINDS: Final[Mapping[str, Callable[[Row], bool]]] = {
    "all": lambda _: True,
    "active": _is(*HELD),
    **{state: _is(state) for state in ("pending", "failed", "completed", "cancelled")},
}


def _state(row: Row, _width: int) -> Cell:
    """Return a job's state, marked as `fleet list` does where the manifest has it no more."""
    style = WARN if row["chance"] else STYLES[row["state"]]
    return (row["state"] if row["planned"] else f"{row['state']}*"), style


def _host(row: Row, _width: int) -> Cell:
    return (NO_HOST, BAD) if row["unplaceable"] else (row["awaits"] or row["host"], PLAIN)


def _progress(row: Row, width: int) -> Cell:
    share, phase = row["share"], row["phase"]
    if row["state"] not in HELD:
        return "", PLAIN
    if phase not in {"", "train"}:
        return (phase if share is None else f"{phase} {share:.0%}"), BUSY
    if share is None:
        return phase or ("starting" if row["state"] == "running" else ""), DIM
    figure = row["epoch"] if "/" in row["epoch"] else f"{share:.0%}"
    room = width - len(figure) - 1
    return (f"{bar(share, room)} {figure}" if room >= 3 else figure), BUSY


def _loss(row: Row, _width: int) -> Cell:
    return ("" if row["loss"] is None else _six(row["loss"])), PLAIN


def _six(value: float) -> str:
    """Return a number in six characters; cut to them, one with more digits would be another."""
    text = f"{value:.4f}"
    return text[:6].rstrip(".") if text.index(".") <= 6 else f"{value:.0e}"


def _score(row: Row, _width: int) -> Cell:
    return (row["score"] if row["metric"] == "auroc" else ""), BAD if row["chance"] else PLAIN


def _curve(row: Row, width: int) -> Cell:
    return spark(row.get("losses", ()), width), BUSY


def _column(title: str, width: int, key: str, rank: int, *, style: str = PLAIN) -> Column:
    right = width < 5
    return Column(title, width, lambda row, _: (str(row[key]), style), right, rank=rank)


COLUMNS: Final = (
    Column("JOB", 19, lambda row, _: (row["name"], PLAIN), most=40),
    Column("STATE", 10, _state),
    Column("HOST", 11, _host, most=24, rank=2),
    _column("MODEL", 8, "model", 7, style=DIM),
    _column("PRIO", 4, "priority", 9),
    _column("TRY", 3, "attempt", 6),
    Column("TOOK", 6, lambda row, _: (took(row), PLAIN), right=True, rank=8),
    Column("AUROC", 5, _score, right=True, rank=10),
    Column("PROGRESS", 12, _progress, most=34, left_out=True, rank=1),
    Column("ETA", 6, lambda row, _: (left(row), PLAIN), right=True, left_out=True, rank=3),
    Column("LOSS", 6, _loss, right=True, left_out=True, rank=4),
    Column("CURVE", 7, _curve, most=40, left_out=True, rank=5),
)
TABLE: Final = Kind("jobs", COLUMNS, ORDERS, KINDS, words, remark)
