"""Hosts as matchmaking sees them, and what speaks against each of them for a job.

The decision and its explanation ask the same rules over the same views: those that are made here.
"""

from __future__ import annotations

from broker.clock import Now
from coordinator.core import host_rules
from coordinator.core.state import World
from coordinator.jobs.jobs import Job
from coordinator.jobs.states import JobState
from coordinator.scheduler.rules import HostView, Reason, prefers_cuda, reasons


def host_view(world: World, name: str, now: Now) -> HostView | None:
    """Return a host as matchmaking sees it; none while it has not said what it is."""
    host = world.hosts.get(name)
    if host is None or host.capability is None:
        return None
    record = world.record(name)
    return HostView(
        host=name,
        online=host.online,
        offline_why="" if host.online else world.presence(host, now),
        capability=host.capability,
        joined=host.has_joined(),
        heartbeat=host.heartbeat,
        policy=world.policy(name),
        used_slots=_used_slots(world, name),
        revoked=world.why_revoked(name),
        barred=record.barred(),
        snoozed=record.snoozed(),
        paused=world.fleet.why_paused(),
        untold=not host_rules.is_told(world, host),
        twins=host.has_twin(now),
    )


def host_views(world: World, now: Now) -> list[HostView]:
    """Return every host whose capability is known, by name, as matchmaking sees it."""
    views = (host_view(world, name, now) for name in sorted(world.hosts))
    return [view for view in views if view is not None]


def explain(world: World, job: Job, now: Now) -> list[tuple[HostView, tuple[Reason, ...]]]:
    """Return every host with every reason that speaks against its taking the job now."""
    waited_s = waited(world, job, now)
    retry = _retry_reason(world, job, now)
    return [
        (
            view,
            retry + reasons(job.spec, _for_job(world, view, job, now), waited_s, world.grace_s()),
        )
        for view in host_views(world, now)
    ]


def refusals(world: World, job: Job, now: Now) -> dict[str, float]:
    """Return for how long each host that refused a job is not asked again, in seconds."""
    refused = world.holdbacks.get(job.job_id, {})
    left = {host: one.until_s - now.mono_s for host, one in refused.items()}
    return {host: left_s for host, left_s in left.items() if left_s > 0}


def waited(world: World, job: Job, now: Now) -> float:
    """Return for how long the job has been pending, in seconds of our own monotonic clock."""
    return now.mono_s - world.pending_since_s.get(job.job_id, now.mono_s)


def grace_left_s(world: World, job: Job, now: Now) -> float:
    """Return for how much longer no host without CUDA is given a job that prefers it; 0: it may."""
    if job.state is not JobState.PENDING or not job.in_plan or not prefers_cuda(job.spec):
        return 0.0
    return max(0.0, world.grace_s() - waited(world, job, now))


def retry_wait_s(world: World, job: Job, now: Now) -> float:
    """Return for how long a job that failed still waits for its next attempt."""
    return max(0.0, world.retry_at_s.get(job.job_id, 0.0) - now.mono_s)


def _retry_reason(world: World, job: Job, now: Now) -> tuple[Reason, ...]:
    wait_s = retry_wait_s(world, job, now)
    if not wait_s:
        return ()
    text = f"retry {job.failures} of {job.spec.retries} begins in {wait_s:.0f} s"
    return (Reason("retry", text, passing=True),)


def _used_slots(world: World, host: str) -> int:
    """Return how many slots of a host are taken."""
    used = sum(job.job_id not in world.awaits for job in world.book.held_by(host))
    for host_name, job_id, _ in world.stops:
        # A trainer that is being stopped keeps its slot until it has ended.
        newer = world.book.get(job_id)
        if host_name == host and (newer is None or not newer.is_held or newer.host != host):
            used += 1
    return used


def _for_job(world: World, view: HostView, job: Job, now: Now) -> HostView:
    holdback = world.holdbacks.get(job.job_id, {}).get(view.host)
    if holdback is None or holdback.until_s <= now.mono_s:
        return view
    return view.refusing(holdback.reasons)
