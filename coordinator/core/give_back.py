"""Asks a host that is drained or snoozed `now` to give its jobs back.

The request is repeated until the attempt is back, its host lists it as ending, or it is over. The
ledger says which hosts must give back, so after a restart the next heartbeat starts it again.
"""

from __future__ import annotations

from typing import Final

from broker.clock import Now, backoff_s
from broker.protocol.messages import HeldJob, Release
from coordinator.core.state import RESEND_BASE_S, RESEND_CAP_S, RESENDS, World
from coordinator.jobs.jobs import Job

_AT_WORK: Final = frozenset({"fetching", "starting", "running"})


def let_go(world: World, host: str, now: Now) -> list[Job]:
    """Ask a host to give back its running jobs; return them."""
    finished = {
        expected.job_id for expected in world.expected.values() if not expected.is_checkpoint
    }
    jobs = [job for job in world.book.held_by(host) if job.job_id not in finished]
    for job in jobs:
        _ask(world, (host, job.job_id, job.attempt), now)
    return jobs


def on_held(world: World, host: str, held: HeldJob, now: Now) -> None:
    """A heartbeat lists an attempt: it may be one that should not be there any more."""
    key = (host, held.job_id, held.attempt)
    if held.phase not in _AT_WORK:
        _forget(world, key)
    elif key not in world.releases and world.record(host).gives_back():
        _ask(world, key, now)


def send(world: World, key: tuple[str, str, int], now: Now) -> None:
    """Ask for an attempt that has not come back yet; after some times wait for a heartbeat."""
    host, job_id, attempt = key
    sent, job = world.releases.get(key), world.book.get(job_id)
    is_there = job is not None and job.is_held and job.is_at(host, attempt)
    why = world.record(host).gives_back()
    if sent is None or sent > RESENDS or not is_there or why is None:
        _forget(world, key)
        return
    request = Release(id=world.new_id(), job_id=job_id, attempt=attempt, why=why)
    world.publish(world.topics.request(host), request)
    world.releases[key] = sent + 1
    wait_s = backoff_s(sent, RESEND_BASE_S, RESEND_CAP_S, world.rng)
    world.timers.set(("release", host, job_id, str(attempt)), now.mono_s + wait_s)


def _ask(world: World, key: tuple[str, str, int], now: Now) -> None:
    if key not in world.releases:
        world.releases[key] = 0
        send(world, key, now)


def _forget(world: World, key: tuple[str, str, int]) -> None:
    host, job_id, attempt = key
    if world.releases.pop(key, None) is not None:
        world.timers.cancel(("release", host, job_id, str(attempt)))
