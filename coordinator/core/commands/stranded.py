"""Jobs that are held by a host which is away: what becomes of them, and when, in words."""

from __future__ import annotations

from itertools import islice
from typing import Final

from pydantic import JsonValue

from broker.clock import Now
from broker.sentences import span
from coordinator.core.state import World
from coordinator.jobs.jobs import Job
from coordinator.jobs.states import JobState

SHOWN: Final = 8
# How a host is in one word -> the same of `the agent of HOST`.
_HOW: Final = {
    "left": "was ended",
    "asleep": "sleeps with its machine",
    "cut-off": "is cut off",
    "silent": "is silent",
}


def away(world: World, job: Job, now: Now) -> str:
    """Return what is to be expected of a held job whose host is away; empty for any other job.

    A claim that is not answered yet is none: it is taken back within seconds.
    """
    host = world.hosts.get(job.host or "")
    lost_at_s = world.timers.when_s(("lease", job.job_id))
    if job.state is not JobState.RUNNING or host is None or host.online or lost_at_s is None:
        return ""
    how = _HOW.get(host.presence(now), "has not been heard of")
    if host.may_have_twin(now):
        how = "is gone from the broker"  # who said goodbye need not be the one that has the job
    last = job.losses + 1 >= world.settings.max_attempts
    what = "fails, lost once too often" if last else "goes back into the queue"
    wait = span(max(0.0, lost_at_s - now.mono_s))
    return f"the agent of {host.name} {how}; unless it comes back, in {wait} the job {what}"


def jobs_away(world: World, now: Now) -> list[JsonValue]:
    """Return the first jobs whose hosts are away, by name of the host, each with what to expect."""
    gone = sorted(host.name for host in world.hosts.values() if not host.online)
    found = ((job, away(world, job, now)) for name in gone for job in world.held_at(name))
    some = islice(((job, words) for job, words in found if words), SHOWN)
    return [{"host": job.host, "job": job.spec.name, "text": words} for job, words in some]
