"""What a stored artifact means: its job is completed, or may go on from its checkpoint."""

from __future__ import annotations

from typing import Final

from broker.clock import Now
from broker.protocol.messages import Released
from coordinator.core import catalogue, host_rules, run_times
from coordinator.core.effects import Collect
from coordinator.core.retries import lose
from coordinator.core.state import World
from coordinator.core.stopping import is_late, tell_to_stop
from coordinator.jobs.causes import NONE, cause
from coordinator.jobs.jobs import Job, StoredCheckpoint
from coordinator.jobs.states import FINAL, Event, JobState

COLLECT_EVERY_S: Final = 6 * 3600.0


def wanted(world: World, artifact_id: str) -> Job | None:
    """Return the job that waits for this artifact, if it still does."""
    expected = world.expected.get(artifact_id)
    if expected is None:
        return None
    job = world.book.get(expected.job_id)
    if job is not None:
        host, attempt = expected.host, expected.report.attempt
        if (job.is_at(host, attempt) and job.state not in FINAL) or is_late(job, host, attempt):
            return job
    world.unexpect(artifact_id)
    return None


def complete(world: World, artifact_id: str, now: Now) -> None:
    """Complete the job that waits for an artifact which is in the store."""
    job = wanted(world, artifact_id)
    if job is None:
        return
    expected = world.expected[artifact_id]
    host, report = expected.host, expected.report
    if isinstance(report, Released):
        _take_checkpoint(world, job, artifact_id, host, report, now)
        return
    brings = {
        "artifact_id": artifact_id,
        "metrics": report.metrics,
        "size_bytes": world.stored[artifact_id],
        "ran_s": run_times.ran_s(world, report, now),
    }
    if job.state is JobState.FAILED:
        world.unexpect(artifact_id)
        world.move(job, Event.KEPT, now, f"host:{host}", cause("late_result"), **brings)
        return
    earlier = None if job.is_at(host, report.attempt) else report.attempt
    if earlier is not None and job.is_held and job.host is not None:
        tell_to_stop(world, job.host, job.job_id, job.attempt, "completed", now)
    came = NONE if earlier is None else cause("late_attempt", attempt=earlier)
    job = world.move(
        job, Event.COMPLETED, now, f"host:{host}", came, host=host, by_attempt=earlier, **brings
    )
    host_rules.note_success(world, job, now)


def _take_checkpoint(
    world: World, job: Job, artifact_id: str, host: str, report: Released, now: Now
) -> None:
    """The job may go on elsewhere, where it left off."""
    world.unexpect(artifact_id)
    left_off = StoredCheckpoint(artifact_id, world.stored[artifact_id], report.attempt)
    who = f"host:{host}"
    ran_s = run_times.ran_s(world, report, now)
    changes = {"checkpoint": left_off, "ran_s": ran_s, "host": None}
    before = job.checkpoint
    if job.is_held:
        why = cause("released", because=report.why.told(), checkpoint=True)
        if report.interrupted and before and before.artifact_id == artifact_id:
            # It got no further: what kills the agent may be the job.
            lose(world, job, now, who, why, host=None, checkpoint=left_off)
        else:
            world.move(job, Event.RELEASED, now, who, why, **changes)
    elif job.state is JobState.PENDING:
        world.move(job, Event.CHANGED, now, who, cause("checkpoint"), **changes)


def take_kept(world: World, failed: Job, job: Job, now: Now, who: str) -> Job:
    """Complete a requeued job with the result that came after it had failed."""
    return world.move(
        job, Event.COMPLETED, now, who, cause("kept_result"),
        artifact_id=failed.artifact_id, metrics=failed.metrics, host=failed.host,
        started_at=failed.started_at, ran_s=failed.ran_s,
        size_bytes=world.stored[failed.artifact_id or ""],
    )  # fmt: skip


def collect(world: World, now: Now) -> None:
    """Have old things deleted; what may go is forgotten first, so it is sent again."""
    jitter_s = COLLECT_EVERY_S * world.rng.random() / 10
    world.timers.set(("collect",), now.mono_s + COLLECT_EVERY_S + jitter_s)
    wanted = {job.artifact_id for job in world.book.all()} | {*world.expected, *world.uploads}
    wanted |= {job.checkpoint.artifact_id for job in world.book.all() if job.checkpoint}
    wanted |= {download.artifact_id for download in world.downloads.values()}
    wanted |= catalogue.blobs(world, now)
    wanted |= {artifact_id for given in world.lent.values() for artifact_id in given}
    unreferenced = tuple(sorted(world.stored.keys() - wanted - world.unfiled.keys()))
    for artifact_id in unreferenced:
        del world.stored[artifact_id]
    world.do(Collect(unreferenced))
