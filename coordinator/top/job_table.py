"""The jobs on the screen: which, in which order, and what each column says of one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker.protocol.messages import JobRow
from broker.sentences import printable
from coordinator.client.seen import Going, Snapshot
from coordinator.jobs import curve, job_progress
from coordinator.jobs.curve import Curve
from coordinator.jobs.set_aside import BELOW_CHANCE
from coordinator.scheduler import explanation_layout
from coordinator.top.layout import BAD, BUSY, DIM, GOOD, PLAIN, WARN, Cell, Column, bar, spark
from coordinator.top.table import Kind
from coordinator.ui.words import NO_HOST, by_activity, first_line, score, seconds
from coordinator.ui.words import took as took_by

STYLES: Final = {
    "pending": WARN,
    "claimed": BUSY,
    "running": BUSY,
    "completed": GOOD,
    "failed": BAD,
    "cancelled": DIM,
}
ACTIVE: Final = frozenset({"claimed", "running"})
# What the filter by state leads through.
KINDS: Final = ("all", "active", "pending", "failed", "completed", "cancelled")
_HOPELESS: Final = "no known host can; why: Enter, 3"  # whole in a window of 80 columns


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job, with what is known of its progress."""

    row: JobRow
    curve: Curve | None
    going: Going

    @property
    def key(self) -> str:
        """What it is known by."""
        return self.row.job_id

    @property
    def remark(self) -> Cell | None:
        """What is said of it where it has neither progress nor a curve."""
        row = self.row
        ran = f"took {said}" if (said := took(row)) else ""
        if row.state == "failed":
            return first_line(row.error, 2000), BAD
        if row.state == "completed":
            auroc = score(row.metrics)
            chance = BELOW_CHANCE if row.below_chance else ""
            said = ", ".join(filter(None, (auroc and f"AUROC {auroc}", chance, ran)))
            return said, BAD if chance else PLAIN
        if row.state == "cancelled":
            return ran, DIM
        if row.state == "pending":
            return _waits(row)
        return None

    @property
    def share(self) -> float | None:
        """How much of it is done, between 0 and 1, where that is known."""
        return self.going.share


def _waits(row: JobRow) -> Cell:
    """Return what keeps a pending job from ever being run, if anything does."""
    if not row.in_plan:
        return "no longer in the manifest", DIM
    if row.waits_for is not None:
        return explanation_layout.waits(row.waits_for.model_dump()), PLAIN
    return (_HOPELESS, BAD) if row.unplaceable else ("", DIM)


def lines(seen: Snapshot) -> list[JobLine]:
    """Return all jobs."""
    going = seen.going()
    return [
        JobLine(row, curve.of(row, seen.curves), going.get(job_id, Going()))
        for job_id, row in seen.jobs.items()
    ]


def is_of(line: JobLine, kind: str) -> bool:
    """Tell whether a job is of a kind, one of `KINDS`."""
    state = line.row.state
    return kind in {"all", state} or (kind == "active" and state in ACTIVE)


def bears(line: JobLine, text: str) -> bool:
    """Tell whether a text, in lower case, is in what one may look for a job by."""
    row = line.row
    words = (row.name, row.model, row.mode, row.host or "", row.error or "",
             NO_HOST if row.unplaceable else "")  # fmt: skip
    return any(text in word.lower() for word in words) or row.job_id.startswith(text)


def _by_activity(line: JobLine) -> tuple[Any, ...]:
    row = line.row
    return by_activity(row.state, row.finished_at, row.priority, row.created_at, row.name)


def _newest(line: JobLine) -> tuple[Any, ...]:
    """Return what puts first what began or ended last, and then what waits in its turn."""
    row = line.row
    return -seconds(row.finished_at or row.started_at), _by_activity(line)


ORDERS: Final[Mapping[str, Callable[[JobLine], Any]]] = {
    "activity": _by_activity,
    "name": lambda line: line.row.name,
    "host": lambda line: (line.row.host is None, line.row.host or "", line.row.name),
    "newest": _newest,
}


def took(row: JobRow) -> str:
    """Return how long a job ran, as `fleet list` says it."""
    return took_by(
        {"ran_s": row.ran_s, "started_at": row.started_at, "finished_at": row.finished_at}
    )  # fmt: skip


def losses(found: Curve | None) -> list[float]:
    """Return the losses of a curve: on what is held out, where that is known."""
    points = found.points if found else ()
    held_out = [point.val_loss for point in points if point.val_loss is not None]
    return held_out or [point.train_loss for point in points if point.train_loss is not None]


def _state(line: JobLine, _width: int) -> Cell:
    """Return a job's state, marked as `fleet list` does where the manifest has it no more."""
    state = line.row.state
    style = WARN if line.row.below_chance else STYLES[state]
    return (state if line.row.in_plan else f"{state}*"), style


def _host(line: JobLine, _width: int) -> Cell:
    if line.row.waits_for is not None:
        return explanation_layout.awaits(line.row.waits_for.model_dump()), PLAIN
    return (NO_HOST, BAD) if line.row.unplaceable else (line.row.host or "", PLAIN)


def _progress(line: JobLine, width: int) -> Cell:
    if line.row.state not in ACTIVE:
        return "", PLAIN
    phase = line.going.held.phase if line.going.held else ""
    now = line.going.progress
    if phase not in {"", "running"}:
        return (phase if line.share is None else f"{phase} {line.share:.0%}"), BUSY
    if line.share is None:
        return (now.phase if now else "starting" if line.row.state == "running" else ""), DIM
    figure = f"{now.epoch}/{now.epochs}" if now and now.epochs else f"{line.share:.0%}"
    room = width - len(figure) - 1
    return (f"{bar(line.share, room)} {figure}" if room >= 3 else figure), BUSY


def left(going: Going) -> str:
    """Return for how much longer a job trains, in a word or two."""
    if going.is_away:
        return "?"  # what its trainer said last is of no use
    return job_progress.left_words(None if going.ends_s is None else going.ends_s - time.time())


def _eta(line: JobLine, _width: int) -> Cell:
    return left(line.going), PLAIN


def _loss(line: JobLine, _width: int) -> Cell:
    now = line.going.progress
    values = (now.val_loss, now.train_loss) if now else ()
    known = next((value for value in values if value is not None), None)
    return ("" if known is None else _six(known)), PLAIN


def _six(value: float) -> str:
    """Return a number in six characters; cut to them, one with more digits would be another."""
    text = f"{value:.4f}"
    return text[:6].rstrip(".") if text.index(".") <= 6 else f"{value:.0e}"


def _result(line: JobLine, _width: int) -> Cell:
    return score(line.row.metrics), BAD if line.row.below_chance else PLAIN


COLUMNS: Final[tuple[Column[JobLine], ...]] = (
    Column("JOB", 19, lambda line, _: (printable(line.row.name), PLAIN), grows=3, most=40),
    Column("STATE", 10, _state),
    Column("HOST", 11, _host, grows=2, most=24, rank=2),
    Column("MODEL", 8, lambda line, _: (line.row.model, DIM), since=110, most=16, grows=1),
    Column("PRIO", 4, lambda line, _: (str(line.row.priority), PLAIN), right=True, since=130),
    Column("TRY", 3, lambda line, _: (str(line.row.attempt), PLAIN), right=True, since=110),
    Column("TOOK", 6, lambda line, _: (took(line.row), PLAIN), right=True, since=120),
    Column("AUROC", 5, _result, right=True, since=150),
    Column("PROGRESS", 12, _progress, grows=2, most=34, left_out=True, rank=1),
    Column("ETA", 6, _eta, right=True, left_out=True, rank=3),
    Column("LOSS", 6, _loss, right=True, left_out=True, rank=4),
    Column(
        "CURVE", 7, lambda line, width: (spark(losses(line.curve), width), BUSY),
        grows=2, most=40, left_out=True, rank=5,
    ),
)  # fmt: skip
TABLE: Final[Kind[JobLine]] = Kind("jobs", COLUMNS, ORDERS, KINDS, is_of, bears)
