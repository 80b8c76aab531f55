"""What is known of a job's earlier attempts: what their trainers said last, until the job is over.

It is remembered as long as this process lives, no longer.
"""

from __future__ import annotations

from broker.clock import Now
from coordinator.core.state import World
from coordinator.jobs import job_progress
from coordinator.jobs.job_progress import LastWord
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
    kept = max(one.share if _is_kept(job, one) else 0.0 for one in words)
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


def _is_kept(job: Job, word: LastWord) -> bool:
    """Whether the checkpoint that the job goes on from is of the attempt that said it."""
    return job.checkpoint is not None and job.checkpoint.attempt == word.attempt
