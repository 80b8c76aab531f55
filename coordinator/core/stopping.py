"""Attempts that are void: their hosts are told to stop, again and again until they answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from broker.clock import Now, backoff_s
from broker.protocol.messages import MAX_LISTED, Cancel, Stopped
from coordinator.core import run_times
from coordinator.core.entries import Stop
from coordinator.core.state import RESEND_BASE_S, RESEND_CAP_S, RESENDS, World
from coordinator.jobs.causes import cause
from coordinator.jobs.jobs import Job
from coordinator.jobs.states import FINAL, Event, JobState

MAX_STOPS: Final = 2 * MAX_LISTED  # of one host that are not answered: more than it can hold


def current(world: World, host: str, job_id: str, attempt: int, now: Now) -> Job | None:
    """Return the job if `host` may speak for it with `attempt`; otherwise tell it to stop."""
    job = world.book.get(job_id)
    if job is not None and job.state not in FINAL and job.is_at(host, attempt):
        return job
    tell_to_stop(world, host, job_id, attempt, why_void(job), now)
    return None


def why_void(job: Job | None) -> str:
    """Return the code that says why nobody waits for an attempt: how its job is by now."""
    return "unknown" if job is None else job.state.value


def tell_to_stop(world: World, host: str, job_id: str, attempt: int, why: str, now: Now) -> None:
    """Tell a host that an attempt is void, until it answers; its heartbeats bring it up again."""
    key = (host, job_id, attempt)
    if key not in world.stops and not _has_many(world, host):
        late = is_late(world.book.get(job_id), host, attempt)
        world.stops[key] = Stop(why, 0, keep_finished=late)
        world.changed_hosts[host] = None
        send(world, key, now)


def _has_many(world: World, host: str) -> bool:
    """Whether a host is told to stop so much already that the rest waits for its heartbeats."""
    return len(world.stops) >= MAX_STOPS and sum(one[0] == host for one in world.stops) >= MAX_STOPS


def is_late(job: Job | None, host: str, attempt: int) -> bool:
    """Whether an attempt was given up as lost, but its result would still be taken."""
    if job is None:
        return False
    if job.is_at(host, attempt):
        return job.state is JobState.FAILED
    return job.state not in FINAL and job.void_attempt < attempt <= job.attempt


def send(world: World, key: tuple[str, str, int], now: Now) -> None:
    """Send a cancel that is not answered yet; after some times wait for the next heartbeat."""
    stop = world.stops.get(key)
    if stop is None:
        return
    host, job_id, attempt = key
    if stop.sent > RESENDS:
        del world.stops[key]
        world.look_at(host)
        return
    request = Cancel(
        id=world.new_id(), job_id=job_id, attempt=attempt, why=stop.why,
        keep_finished=stop.keep_finished,
    )  # fmt: skip
    world.publish(world.topics.request(host), request)
    world.stops[key] = replace(stop, sent=stop.sent + 1)
    wait_s = backoff_s(stop.sent, RESEND_BASE_S, RESEND_CAP_S, world.rng)
    world.timers.set(("stop", host, job_id, str(attempt)), now.mono_s + wait_s)


def on_return(world: World, host: str, now: Now) -> None:
    """Tell a host that has a new connection again what it is to stop: it holds a slot till then."""
    for _, job_id, attempt in [key for key in world.stops if key[0] == host]:
        world.timers.set(("stop", host, job_id, str(attempt)), now.mono_s)


def on_stopped(world: World, host: str, report: Stopped, now: Now) -> None:
    """An agent no longer runs an attempt that it was told to stop, by us or by somebody else."""
    if world.stops.pop((host, report.job_id, report.attempt), None) is not None:
        world.look_at(host)
    world.timers.cancel(("stop", host, report.job_id, str(report.attempt)))
    job = world.book.get(report.job_id)
    if job is None or not job.is_held or not job.is_at(host, report.attempt):
        return
    if job.job_id not in world.claims and job.instance == report.instance:
        why = cause("stopped_by_another")
        ran_s = run_times.ran_s(world, report, now)
        world.move(job, Event.RELEASED, now, f"host:{host}", why, ran_s=ran_s)
