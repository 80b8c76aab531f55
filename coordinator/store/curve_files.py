"""The learning curves of jobs: one bounded file a job, beside its log.

Each point is appended as a line: attempt, its first epoch, the curve's gap, and the point. A file
of more than `MOST_BYTES` is rewritten with the thinned curve. Nothing is fsynced.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Final

from broker.protocol.messages import Progress
from broker.system.files import RealDisk, read, write_atomically
from coordinator.jobs.curve import Curve, Point, added, extended

MOST_BYTES: Final = 16 * 1024  # a thinned curve takes about 10 KiB


class CurveFiles:
    """Curves under `folder`, which is there."""

    def __init__(self, folder: Path, disk: RealDisk) -> None:
        """Prepare; files are read when they are asked for."""
        self._folder, self._disk = folder, disk

    def add(self, job_id: str, told: Progress) -> None:
        """Add what a trainer has told; a disk that refuses costs the point, nothing else."""
        news, path = extended(None, told), self._path(job_id)
        if news is None:
            return
        with contextlib.suppress(OSError):
            with self._disk.open(path, "ab") as file:
                file.write(_lines(news, told.first_epoch))
                size_bytes = file.tell()
            if size_bytes > MOST_BYTES and (curve := self.get(job_id)):
                write_atomically(self._disk, path, _lines(curve), durable=False)

    def get(self, job_id: str) -> Curve | None:
        """Return the curve of a job; none where nothing was told."""
        curve = None
        with contextlib.suppress(OSError):
            for line in read(self._disk, self._path(job_id)).splitlines():
                with contextlib.suppress(ValueError, TypeError):  # cut by a power cut
                    attempt, first_epoch, gap, *point = json.loads(line)
                    found = added(curve, attempt, first_epoch, Point(*point))
                    curve = replace(found, gap=max(found.gap, gap))
        return curve

    def _path(self, job_id: str) -> Path:
        return self._folder / f"{job_id}.curve"


def _lines(curve: Curve, first_epoch: int | None = None) -> bytes:
    first = curve.points[0].epoch if first_epoch is None else first_epoch
    lines = (json.dumps([curve.attempt, first, curve.gap, *point]) for point in curve.points)
    return "".join(f"{line}\n" for line in lines).encode()
