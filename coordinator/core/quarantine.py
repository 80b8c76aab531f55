"""Hosts on which jobs fail that work elsewhere: they are put in quarantine, with the reason.

A failure alone is no proof: the job may be at fault. It becomes one when the same job is completed
on another host. Three such jobs, with nothing completed on the host in between, are enough.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from broker.clock import Now
from coordinator.core.state import Evidence, World
from coordinator.jobs.jobs import Job
from coordinator.jobs.records import moment

PROOFS: Final = 3
MAX_FAILURES: Final = 64


def note_failure(world: World, host: str, job_id: str) -> None:
    """A job has failed on a host, for a reason that may be the host's."""
    evidence = world.evidence.setdefault(host, Evidence())
    evidence.failed[job_id] = None
    while len(evidence.failed) > MAX_FAILURES:
        del evidence.failed[next(iter(evidence.failed))]


def note_success(world: World, job: Job, now: Now) -> None:
    """A job is completed: that clears its host, and speaks against those on which it failed."""
    if job.host is None:
        return
    world.evidence.pop(job.host, None)
    for host, evidence in world.evidence.items():
        if job.job_id in evidence.failed:
            del evidence.failed[job.job_id]
            evidence.proven[job.job_id] = job.spec.name
            if len(evidence.proven) >= PROOFS:
                _quarantine(world, host, evidence, now)


def _quarantine(world: World, host: str, evidence: Evidence, now: Now) -> None:
    record = world.record(host)
    if record.quarantine:
        return
    names = ", ".join(list(evidence.proven.values())[:8])
    why = f"{names} failed on it and were completed elsewhere ({moment(now.text())})"
    world.remember(replace(record, quarantine=why))
    evidence.proven.clear()
