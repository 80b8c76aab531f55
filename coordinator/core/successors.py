"""Jobs that come after others: when they may start, and the artifacts that they are given.

The book knows who comes after a job, so that a job that has nobody before or after it costs
nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from broker.clock import Now
from broker.protocol.messages import Assign, Input
from broker.protocol.reasons import Reason
from coordinator.core.state import World
from coordinator.jobs.jobs import Job
from coordinator.jobs.states import JobState
from coordinator.scheduler import precedence
from coordinator.scheduler.precedence import Before


def unmet(world: World, job: Job) -> Iterator[Reason]:
    """Yield what a pending job still waits for of the jobs before it."""
    return precedence.unmet(job.spec, lambda job_id: before(world, job_id))


def before(world: World, job_id: str) -> Before | None:
    """Return a job as one that comes before others; none: there is no such job."""
    job = world.book.get(job_id)
    if job is None:
        return None
    coming = world.expected.get(world.awaits.get(job_id, "")) if job.is_held else None
    state = "uploading" if coming is not None and not coming.is_checkpoint else job.state.value
    has_result = bool(world.stored.get(job.artifact_id or ""))  # 0: its file was emptied
    return Before(job.spec.name, state, job.in_plan, has_result)


def with_successors(world: World, moved: Iterable[Job]) -> Iterator[Job]:
    """Yield jobs that have moved, each with those that come after it."""
    for job in moved:
        yield job
        yield from world.book.followers(job.job_id)


def holds(world: World, job: Job, now: Now) -> bool:
    """Whether a pending job has to wait for others; its grace for CUDA begins when it has not."""
    if not (job.spec.after or job.spec.inputs):
        return False
    if any(unmet(world, job)):
        world.behind[job.job_id] = None
        return True
    if job.job_id in world.behind:
        del world.behind[job.job_id]
        world.pending_since_s[job.job_id] = now.mono_s
    return False


def inputs_of(world: World, job: Job) -> tuple[Input, ...]:
    """Return the artifacts that a job reads, by the names that it has for them."""
    found = []
    for name, job_id in job.spec.inputs.items():
        one = world.book.get(job_id)
        artifact_id = "" if one is None or one.artifact_id is None else one.artifact_id
        if one is not None and one.state is JobState.COMPLETED and world.stored.get(artifact_id):
            size_bytes = world.stored[artifact_id]
            found.append(Input(name=name, artifact_id=artifact_id, size_bytes=size_bytes))
    return tuple(found)


def lend(world: World, request: Assign) -> None:
    """Keep what an assignment gives to a host, also if the jobs that made it begin anew."""
    if request.inputs:
        world.lent[request.job_id] = frozenset(one.artifact_id for one in request.inputs)


def artifacts(world: World, job: Job) -> frozenset[str]:
    """Return the ids of the artifacts that a held job was given."""
    given = world.lent.get(job.job_id)
    if given is None and job.spec.inputs:  # before a restart of the coordinator
        given = frozenset(one.artifact_id for one in inputs_of(world, job))
    return given or frozenset()
