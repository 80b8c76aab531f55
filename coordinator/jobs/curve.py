"""The losses of a job by epoch, from its first epoch to its newest one, in so many points at most.

Attempts are not mixed: a later one keeps of an earlier one what lies before its own first epoch,
which is what it goes on from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.figures import is_figure

if TYPE_CHECKING:
    from broker.protocol.messages import JobRow, Progress

MOST: Final = 200  # points of one curve
MOST_EPOCH: Final = 1 << 53  # beyond it a number is not exact everywhere


class Point(NamedTuple):
    """The losses of one epoch."""

    epoch: int
    train_loss: float | None
    val_loss: float | None


@dataclass(frozen=True, slots=True)
class Curve:
    """What was told until `attempt`; its points are `gap` epochs apart, but for the newest."""

    attempt: int
    points: tuple[Point, ...] = ()
    gap: int = 1


def extended(curve: Curve | None, told: Progress) -> Curve | None:
    """Return the curve with what a trainer has told; the same one where that is no news."""
    point = Point(told.epoch or 0, _rounded(told.train_loss), _rounded(told.val_loss))
    if told.epoch is None or told.epoch > MOST_EPOCH or point[1:] == (None, None):
        return curve
    return added(curve, told.attempt, told.first_epoch, point)


def added(curve: Curve | None, attempt: int, first_epoch: int | None, point: Point) -> Curve:
    """Return the curve with a point of an attempt that began to tell with `first_epoch`."""
    if curve is None or attempt > curve.attempt:
        first = point.epoch if first_epoch is None else first_epoch
        kept = [one for one in curve.points if one.epoch < first] if curve else []
        curve = Curve(attempt, tuple(kept), curve.gap if curve and kept else 1)
    elif attempt < curve.attempt or point == curve.points[-1]:
        return curve
    gap, points = curve.gap, [one for one in curve.points if one.epoch < point.epoch]
    if len(points) > 1 and points[-1].epoch - points[-2].epoch < gap:
        points.pop()  # it was there as the newest alone
    points.append(point)
    while len(points) > MOST:
        gap *= 2
        points = _thinned(points, gap)
    return Curve(attempt, tuple(points), gap)


def in_fields(job_id: str, curve: Curve) -> dict[str, Any]:
    """Return the curve of a job as an answer has it."""
    points = [list(point) for point in curve.points]
    return {"job_id": job_id, "attempt": curve.attempt, "gap": curve.gap, "points": points}


def curves_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, Curve]:
    """Return the curves in an answer of the coordinator, by job."""
    return {
        row["job_id"]: Curve(
            row["attempt"], tuple(Point(*one) for one in row["points"]), row["gap"]
        )
        for row in rows
    }


def joined(theirs: Curve, ours: Curve | None) -> Curve:
    """Return what the coordinator has, with what this client has heard since."""
    if ours is None or ours.attempt < theirs.attempt:
        return theirs
    if ours.attempt > theirs.attempt:
        return ours
    for point in ours.points:
        if point.epoch > theirs.points[-1].epoch:
            theirs = added(theirs, theirs.attempt, None, point)
    return theirs


def of(row: JobRow, curves: Mapping[str, Curve]) -> Curve | None:
    """Return the curve of a job's newest attempt; none while that has told of none."""
    curve = curves.get(row.job_id)
    is_its = curve is not None and curve.attempt == row.attempt and row.state != "pending"
    return curve if is_its else None


def _thinned(points: Iterable[Point], gap: int) -> list[Point]:
    first, *between, newest = points
    kept = [first]
    for one in between:
        if one.epoch - kept[-1].epoch >= gap:
            kept.append(one)
    return [*kept, newest]


def _rounded(value: float | None) -> float | None:
    return float(f"{value:.6g}") if is_figure(value) else None
