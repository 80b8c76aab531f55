"""The learning curves of jobs: one bounded file a job, beside its log.

Each point is appended as a line: attempt, its first epoch, and the point. After `LINES` of them the
file is rewritten with the whole thinned curve. Nothing is fsynced.
"""

from __future__ import annotations

import contextlib
import json
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final

from broker.protocol.messages import Progress
from broker.system.files import RealDisk, read
from coordinator.jobs.curve import MOST, Curve, Point, added, extended

KEPT: Final = 256  # curves in memory
LINES: Final = MOST  # after the whole curve


class CurveFiles:
    """Curves under `folder`, which is there."""

    def __init__(self, folder: Path, disk: RealDisk) -> None:
        """Prepare; files are read when they are asked for."""
        self._folder, self._disk = folder, disk
        self._known: OrderedDict[str, tuple[Curve | None, int]] = OrderedDict()

    def add(self, job_id: str, told: Progress) -> None:
        """Add what a trainer has told; a disk that refuses costs the point, nothing else."""
        before, lines = self._load(job_id)
        curve = extended(before, told)
        if curve is None or curve is before:
            return
        is_full = lines >= LINES
        self._keep(job_id, curve, 0 if is_full else lines + 1)
        with contextlib.suppress(OSError):
            if is_full:
                self._write(job_id, curve)
                return
            line = json.dumps([told.attempt, told.first_epoch, *curve.points[-1]])
            with self._disk.open(self._path(job_id), "ab") as file:
                file.write(f"{line}\n".encode())

    def get(self, job_id: str) -> Curve | None:
        """Return the curve of a job; none where nothing was told."""
        return self._load(job_id)[0]

    def _load(self, job_id: str) -> tuple[Curve | None, int]:
        if job_id not in self._known:
            self._keep(job_id, *self._read(job_id))
        self._known.move_to_end(job_id)
        return self._known[job_id]

    def _keep(self, job_id: str, curve: Curve | None, lines: int) -> None:
        self._known[job_id] = (curve, lines)
        while len(self._known) > KEPT:
            self._known.popitem(last=False)

    def _read(self, job_id: str) -> tuple[Curve | None, int]:
        curve, lines = None, 0
        with contextlib.suppress(OSError):
            for line in read(self._disk, self._path(job_id)).splitlines():
                lines += 1
                with contextlib.suppress(ValueError, TypeError, KeyError):  # cut by a power cut
                    curve = _with(curve, json.loads(line))
        return curve, lines

    def _write(self, job_id: str, curve: Curve) -> None:
        path = self._path(job_id)
        making = path.with_suffix(".making")
        with self._disk.open(making, "wb") as file:
            told = {"attempt": curve.attempt, "gap": curve.gap, "points": curve.points}
            file.write(json.dumps(told).encode() + b"\n")
        self._disk.replace(making, path)

    def _path(self, job_id: str) -> Path:
        return self._folder / f"{job_id}.curve"


def _with(curve: Curve | None, line: Any) -> Curve:
    """Return the curve with what a line has. Raises ValueError, TypeError, KeyError."""
    if isinstance(line, dict):
        points = tuple(Point(*point) for point in line["points"])
        return Curve(int(line["attempt"]), points, int(line["gap"]))
    attempt, first_epoch, *point = line
    return added(curve, attempt, first_epoch, Point(*point))
