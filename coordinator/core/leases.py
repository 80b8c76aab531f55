"""The coordinator's side of a lease: for how long a host may be silent before its jobs are lost.

A lease is renewed by each heartbeat that lists its job, and by what else a host says of the job. It
is a timer, `("lease", job_id)`, and in no ledger. `World.move` cancels it when the job is held no
more. The agent's side is agent/core/leases.py. See docs/reference/protocol.md, "Leases".
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.clock import Now
from broker.protocol.messages import Heartbeat, Lease, LeasedJob
from coordinator.core.retries import lose
from coordinator.core.state import World
from coordinator.jobs.causes import cause
from coordinator.jobs.jobs import Job
from coordinator.jobs.states import JobState


def lease_s(world: World, host: str) -> float:
    """Return how long a host may be silent before its jobs are given to somebody else."""
    known, settings = world.hosts.get(host), world.settings
    if known is not None and known.may_sleep():
        return max(settings.sleep_grace_s, settings.stale_after_s)
    return settings.stale_after_s


def renew(world: World, job: Job, now: Now) -> None:
    """The job's host has been heard; a machine that may sleep is waited for longer."""
    world.timers.set(("lease", job.job_id), now.mono_s + lease_s(world, job.host or ""))


def renew_all(world: World, now: Now) -> None:
    """Nobody could be heard until now."""
    for job in world.book.in_state(JobState.CLAIMED, JobState.RUNNING):
        renew(world, job, now)


def grant(world: World, host: str, heard: str, jobs: Sequence[Job], now: Now) -> None:
    """Renew leases, and tell the host; `heard` names what it has sent."""
    for job in jobs:
        renew(world, job, now)
    if jobs:
        leased = tuple(LeasedJob(job_id=job.job_id, attempt=job.attempt) for job in jobs)
        length_s = lease_s(world, host)
        lease = Lease(id=world.new_id(), heard=heard, lease_s=length_s, jobs=leased)
        world.publish(world.topics.request(host), lease)


def on_heartbeat(world: World, host: str, heartbeat: Heartbeat, now: Now) -> None:
    """Renew the lease of what a host lists and still has, and tell it so."""
    leased: list[Job] = []
    for held in heartbeat.jobs:
        job = world.book.get(held.job_id)
        if job is not None and job.is_held and job.is_at(host, held.attempt):
            leased.append(job)
    grant(world, host, str(heartbeat.seq), leased, now)


def on_expired(world: World, job_id: str, now: Now) -> None:
    """No heartbeat has vouched for a held job for a whole lease."""
    job = world.book.get(job_id)
    if job is None or not job.is_held:
        return
    if not world.connected:
        renew(world, job, now)  # it is not the host that is silent
    else:
        host = world.hosts.get(job.host or "")
        away = None if host is None or host.online else host.presence(now)
        lose(world, job, now, "coordinator", cause("silent", presence=away))
