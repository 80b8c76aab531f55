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
    """Return a trainer's run time by its agent's word, at most the time since its assignment."""
    if report.ran_s is None or report.ran_s < 0:
        return None
    most_s = _since_given_s(world, report.job_id, report.attempt, now)
    return None if most_s < 0 else min(report.ran_s, most_s)


def _since_given_s(world: World, job_id: str, attempt: int, now: Now) -> float:
    """Return how long ago an attempt was given out, or at least its job added.

    By the clock that says more: the monotonic one stands still while this machine sleeps, the other
    may be set back. An attempt that is older than this process is as old as its job at most.
    """
    given, at = world.given.get(job_id, (0, now))
    if given == attempt:
        return max(now.mono_s - at.mono_s, now.wall_s - at.wall_s)
    job = world.book.get(job_id)
    return now.wall_s - (seconds_of(job.created_at) or 0.0) if job else 0.0
