"""Hosts as matchmaking sees them, and what speaks against each of them for a job.

The decision and its explanation ask the same rules over the same views: those that are made here.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.clock import Now
from broker.protocol.reasons import Reason, reason
from coordinator.core import host_rules
from coordinator.core.state import World
from coordinator.jobs.hosts import Host
from coordinator.jobs.jobs import Job
from coordinator.jobs.states import JobState
from coordinator.scheduler.rules import HostView, prefers_cuda, reasons, slots


def host_view(world: World, name: str, now: Now) -> HostView | None:
    """Return a host as matchmaking sees it; none while it has not said what it is."""
    host = world.hosts.get(name)
    if host is None or host.capability is None:
        return None
    policy = world.policy(name)
    return HostView(
        host=name,
        online=host.online,
        presence=world.presence(host, now),
        capability=host.capability,
        joined=host.has_joined(),
        heartbeat=host.heartbeat,
        policy=policy,
        used_slots=_used_slots(world, name),
        ahead=slots(host.capability, policy) if _frees_a_slot_soon(world, host) else 0,
        restraints=world.restraints(name),
        untold=not host_rules.is_told(world, host),
        twins=host.has_twin(now),
        unusable=host.cannot_use(now),
    )


def _frees_a_slot_soon(world: World, host: Host) -> bool:
    """Whether all that a host runs is of models whose attempts there take seconds."""
    held = world.book.held_by(host.name)
    return bool(host.quick) and all(job.spec.model in host.quick for job in held)


def host_views(world: World, now: Now) -> list[HostView]:
    """Return every host whose capability is known, by name, as matchmaking sees it."""
    views = (host_view(world, name, now) for name in sorted(world.hosts))
    return [view for view in views if view is not None]


def explain(world: World, job: Job, now: Now) -> list[tuple[HostView, tuple[Reason, ...]]]:
    """Return every host with every reason that speaks against its taking the job now."""
    return [(view, tuple(against(world, job, view, now))) for view in host_views(world, now)]


def against(world: World, job: Job, view: HostView, now: Now) -> Iterator[Reason]:
    """Yield every reason against giving a pending job to a host now; none: it is given it."""
    if (wait_s := retry_wait_s(world, job, now)) > 0:
        number, most = job.failures, job.spec.retries
        yield reason("retry", number=number, most=most, left_s=round(wait_s))
    if view.host in refusals(world, job, now):
        said = world.holdbacks[job.job_id][view.host].reasons
        yield reason("refused", reasons=[one.to_dict() for one in said])
    yield from reasons(job.spec, view, grace_over_s(world, job, now) - now.mono_s, world.grace_s())


def refusals(world: World, job: Job, now: Now) -> dict[str, float]:
    """Return for how long each host that refused a job is not asked again, in seconds."""
    refused = world.holdbacks.get(job.job_id, {})
    left = {host: one.until_s - now.mono_s for host, one in refused.items()}
    return {host: left_s for host, left_s in left.items() if left_s > 0}


def waited(world: World, job: Job, now: Now) -> float:
    """Return for how long the job has been pending, in seconds of our own monotonic clock."""
    return now.mono_s - world.pending_since_s.get(job.job_id, now.mono_s)


def grace_over_s(world: World, job: Job, now: Now) -> float:
    """Return until when no host without CUDA is given a job that prefers it (monotonic)."""
    return world.pending_since_s.get(job.job_id, now.mono_s) + world.grace_s()


def grace_left_s(world: World, job: Job, now: Now) -> float:
    """Return for how much longer a pending job of the plan waits for CUDA; 0: it does not."""
    if job.state is not JobState.PENDING or not job.in_plan or not prefers_cuda(job.spec):
        return 0.0
    return max(0.0, grace_over_s(world, job, now) - now.mono_s)


def retry_wait_s(world: World, job: Job, now: Now) -> float:
    """Return for how long a job that failed still waits for its next attempt."""
    return max(0.0, (world.timers.when_s(("retry", job.job_id)) or 0.0) - now.mono_s)


def _used_slots(world: World, host: str) -> int:
    """Return how many slots of a host are taken."""
    used = 0
    for job in world.book.held_by(host):
        # Of a job whose trainer has ended only the result is on its way, unless that is another's.
        coming = world.expected.get(world.awaits.get(job.job_id, ""))
        used += coming is None or coming.host != host
    for host_name, job_id, _ in world.stops:
        # A trainer that is being stopped keeps its slot until it has ended.
        newer = world.book.get(job_id)
        if host_name == host and (newer is None or not newer.is_held or newer.host != host):
            used += 1
    return used
