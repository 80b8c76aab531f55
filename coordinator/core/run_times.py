"""How long an attempt ran, by its agent, and for how long it trains on, by its trainer."""

from __future__ import annotations

from broker.clock import Now, seconds_of
from broker.protocol.messages import Failed, Finished, Released, Stopped
from coordinator.core.state import World
from coordinator.jobs import job_progress
from coordinator.jobs.jobs import Job


def left_s(world: World, job: Job, now: Now) -> float | None:
    """Return for how many seconds a job trains on, by its trainer's word; below zero: overdue."""
    host = world.hosts.get(job.host or "")
    if host is None or not job.is_held:
        return None
    told_s = host.told_s.get(job.job_id, now.mono_s)
    return job_progress.left_s(host.progress.get(job.job_id), now.mono_s - told_s)


def ran_s(
    world: World, report: Finished | Failed | Released | Stopped, now: Now
) -> float | None:  # fmt: skip
    """Return a trainer's run time by its agent's word, no longer than its job is there."""
    if report.ran_s is None or report.ran_s < 0:
        return None
    job = world.book.known(report.job_id)
    age_s = now.wall_s - (seconds_of(job.created_at) or 0.0)
    return report.ran_s if age_s < 0 else min(report.ran_s, age_s)  # below zero: it was set back
