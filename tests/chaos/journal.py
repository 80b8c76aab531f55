"""What the trainers of a campaign have noted: who ran when, and whether two were at one job."""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class Life:
    """One process of a trainer; it was alive from `begun_s` to `last_s` at least.

    Times are seconds of the machine's monotonic clock. One that was killed has noted its last step,
    not its end: it may have lived for a step longer.
    """

    host: str
    job_id: str
    attempt: int
    pid: int
    begun_s: float
    last_s: float
    begun_step: int


def read(path: Path) -> list[Life]:
    """Return all that ran, in the order in which they began."""
    lives: list[Life] = []
    running: dict[int, Life] = {}  # by process id, which another may have later
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        said = json.loads(line)
        if said["what"] == "begun":
            life = running[said["pid"]] = Life(
                said["host"], said["job_id"], said["attempt"], said["pid"], said["at_s"],
                said["at_s"], said["step"],
            )  # fmt: skip
            lives.append(life)
        running[said["pid"]].last_s = said["at_s"]
    return lives


def at_once(lives: Iterable[Life]) -> list[str]:
    """Return a line for any two that were at one job at the same time."""
    by_job: dict[str, list[Life]] = defaultdict(list)
    for life in lives:
        by_job[life.job_id].append(life)
    found = []
    for same in by_job.values():
        for one, other in itertools.combinations(sorted(same, key=lambda it: it.begun_s), 2):
            overlap_s = min(one.last_s, other.last_s) - other.begun_s
            if overlap_s > 0:
                found.append(
                    f"{one.job_id[:12]} for {overlap_s:.1f} s: attempt {one.attempt} on {one.host} "
                    f"and {other.attempt} on {other.host}, from {other.begun_s:.1f} s"
                )
    return found


def started_twice(lives: Iterable[Life]) -> list[str]:
    """Return a line for each attempt that more than one process ran."""
    counts = Counter((life.job_id, life.attempt) for life in lives)
    return [
        f"{job_id[:12]} attempt {attempt}: {count} times"
        for (job_id, attempt), count in counts.items()
        if count > 1
    ]
