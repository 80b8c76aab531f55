"""What a host does before a job's trainer starts: it fetches what it lacks, and installs packages.

A host that does not hold a program's parcel has not installed its packages either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from coordinator.jobs.plan_entries import JobSpec
from coordinator.scheduler.estimates import NEWEST, NO_TIME, QUANTILES, Span, quantile
from coordinator.scheduler.rules import HostView

USUAL_BYTES_PER_S: Final = 10e6  # of a host where nothing was measured
LEAST_BYTES: Final = 8 * 1024**2  # what is smaller says more of the round trip than of the rate


class Lead(NamedTuple):
    """What a host fetches, in bytes, and how long that takes, and then the packages."""

    lacks_bytes: int = 0
    fetch_s: float = 0.0
    prepare: Span = NO_TIME

    def then(self, span: Span = NO_TIME) -> Span:
        """Return how long it takes together with what comes then."""
        return Span(*(self.fetch_s + one + after for one, after in zip(self.prepare, span)))


NO_LEAD: Final = Lead()


class LeadTimes:
    """What was measured of it: rates by host, installations by program and host."""

    def __init__(self) -> None:
        """Nothing was measured."""
        self._fetched: dict[str, list[tuple[int, float]]] = {}
        self._installed_s: dict[str, dict[str, float]] = {}

    def note(self, attempt: Mapping[str, Any]) -> None:
        """Take in an ended attempt, newest first."""
        model, host = attempt["model"], attempt["host"]
        size_bytes, took_s = attempt.get("fetched_bytes", 0), attempt.get("fetch_s", 0.0)
        if size_bytes >= LEAST_BYTES and took_s > 0:
            newest = self._fetched.setdefault(host, [])
            if len(newest) < NEWEST:
                newest.append((size_bytes, took_s))
        if prepare_s := attempt.get("prepare_s"):
            # The longest: later attempts have found the packages there.
            of_program = self._installed_s.setdefault(model, {})
            of_program[host] = max(prepare_s, of_program.get(host, 0.0))

    def of(self, job: JobSpec, view: HostView) -> Lead:
        """Return what the host does before it starts the job."""
        lacks = view.lacks(job)
        if not lacks:
            return NO_LEAD
        lacks_bytes = sum(lacks.values())
        program = job.program
        installs = program and program.environment != "none" and program.digest in lacks
        prepare = self._prepare(job.model, view.host) if installs else NO_TIME
        return Lead(lacks_bytes, lacks_bytes / self._bytes_per_s(view.host), prepare)

    def _bytes_per_s(self, host: str) -> float:
        if host not in self._fetched:
            return USUAL_BYTES_PER_S
        sizes, times = zip(*self._fetched[host])
        return float(sum(sizes) / sum(times))

    def _prepare(self, program: str, host: str) -> Span:
        by_host = self._installed_s.get(program, {})
        took_s = sorted([by_host[host]] if host in by_host else by_host.values())
        return Span(*(quantile(took_s, at) for at in QUANTILES)) if took_s else NO_TIME
