"""What metrics count that nobody else needs: kept only while metrics are on, of bounded size."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import Final

from coordinator.jobs.jobs import Change
from coordinator.jobs.records import Record
from coordinator.jobs.states import Event

JOB_BOUNDS_S: Final = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 14_400.0,
                       28_800.0, 86_400.0)  # fmt: skip
COMMIT_BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
MAX_MODELS: Final = 50  # with a histogram of their own; the rest is `other`
OTHER: Final = "other"
_ENDS: Final = {Event.COMPLETED: "completed", Event.FAILED: "failed"}
LOSSES: Final = frozenset({Event.LOST, Event.EXHAUSTED})


@dataclass(slots=True)
class Histogram:
    """How many values were up to each bound, and their sum. The last bucket has no bound."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts = self.counts or [0] * (len(self.bounds) + 1)
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulated(self) -> list[int]:
        """Return how many values were up to each bound, at last of all."""
        return list(accumulate(self.counts or [0] * (len(self.bounds) + 1)))

    def copy(self) -> Histogram:
        """Return it as it is now."""
        return Histogram(self.bounds, [*self.counts], self.total)


@dataclass(slots=True)
class Tally:
    """What has happened since the coordinator started. The deciding thread alone changes it."""

    events: Counter[str] = field(default_factory=Counter)
    durations: dict[tuple[str, str], Histogram] = field(default_factory=dict)
    commits: Histogram = field(default_factory=lambda: Histogram(COMMIT_BOUNDS_S))
    commit_failures: int = 0
    artifacts: int = 0
    artifact_bytes: int = 0

    def on_commit(self, changes: Iterable[Change | Record], seconds: float) -> None:
        """A transaction was committed, and took so long."""
        self.commits.observe(seconds)
        for change in changes:
            if isinstance(change, Change):
                self.events[change.event.value] += 1
                if change.event in _ENDS:
                    self._on_end(change)

    def on_stored(self, size_bytes: int) -> None:
        """An artifact came home."""
        self.artifacts += 1
        self.artifact_bytes += size_bytes

    def copy(self) -> Tally:
        """Return everything as it is now."""
        return Tally(
            Counter(self.events),
            {key: histogram.copy() for key, histogram in self.durations.items()},
            self.commits.copy(),
            self.commit_failures,
            self.artifacts,
            self.artifact_bytes,
        )

    def _on_end(self, change: Change) -> None:
        job = change.after
        seconds = _ran_s(change)
        if seconds is None:
            return
        model = job.spec.model
        known = {name for name, _ in self.durations}
        if model not in known and len(known) >= MAX_MODELS:
            model = OTHER
        key = (model, _ENDS[change.event])
        self.durations.setdefault(key, Histogram(JOB_BOUNDS_S)).observe(seconds)


def _ran_s(change: Change) -> float | None:
    """Return how long the attempt ran that has ended: as its agent measured it, or by our clock."""
    job, before = change.after, change.before
    if job.ran_s is not None:
        return job.ran_s
    started_at = job.started_at or (before.started_at if before else None)
    if started_at is None or job.finished_at is None:
        return None
    return max(0.0, _seconds(job.finished_at) - _seconds(started_at))


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()
