"""How long attempts ran, and what the trainers of earlier ones said last.

That is remembered until the job is over, or this process ends.
"""

from __future__ import annotations

from datetime import datetime

from broker.clock import Now
from broker.protocol.messages import Failed, Finished, Released, Stopped
from coordinator.core.state import World
from coordinator.jobs import job_progress
from coordinator.jobs.jobs import Job
from coordinator.jobs.states import JobState
from coordinator.scheduler.estimates import Earlier


def earlier(world: World, job: Job) -> Earlier | None:
    """Return how far an earlier attempt was; none where none of them has told."""
    words = world.earlier.get(job.job_id, ())
    if job.state is JobState.PENDING and job.host in world.hosts:  # lost, not given out since
        told = world.hosts[job.host].progress.get(job.job_id)
        words += job_progress.last_word(job.host, told)
    if not words:
        return None
    newest = words[-1]
    # The checkpoint that the job goes on from is of one of these attempts, or of none.
    kept_of = job.checkpoint.attempt if job.checkpoint else None
    kept = max((one.share for one in words if one.attempt == kept_of), default=0.0)
    return Earlier(newest.host, newest.share, newest.whole_s, kept)


def left_s(world: World, job: Job, now: Now) -> float | None:
    """Return for how many seconds a job trains on, by its trainer's word; below zero: overdue."""
    host = world.hosts.get(job.host or "")
    if host is None or not job.is_held:
        return None
    told = host.progress.get(job.job_id)
    if told is not None and told.eta_s is not None:
        return job_progress.left_s(told, now.mono_s - host.told_s.get(job.job_id, now.mono_s))
    if job.job_id not in world.earlier or job.state is not JobState.RUNNING:
        return None
    before = earlier(world, job)
    if before is None or before.whole_s is None:
        return None
    rest_s = before.whole_s * before.rest(host.name).median - job.elapsed_s(now)
    return rest_s if rest_s > 0 else None


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
    return now.wall_s - datetime.fromisoformat(job.created_at).timestamp() if job else 0.0
