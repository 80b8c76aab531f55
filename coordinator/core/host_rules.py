"""The manifest's rules for hosts, brought to their agents: quiet hours, idle only.

The agent judges them, by its own clock and its own eyes: it knows its time zone and who uses the
machine, and obeys when the coordinator is out of reach. A host that has rules is given no job
before a heartbeat says that it has taken them.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Final

from broker.clock import Now
from broker.protocol.messages import Heartbeat, HostRules, Rules
from coordinator.core.entries import Evidence
from coordinator.core.state import World
from coordinator.jobs.hosts import Host
from coordinator.jobs.jobs import Job
from coordinator.jobs.plan_entries import HostPolicy

PROOFS: Final = 3
MOST_NAMES: Final = 8  # of jobs
MAX_FAILURES: Final = 64
TELL_EVERY_S: Final = 5.0


def rules_of(policy: HostPolicy) -> HostRules:
    """Return what a policy says of when a host takes no jobs."""
    return HostRules(
        quiet_hours=policy.quiet_hours, idle_only=policy.idle_only, on_busy=policy.on_busy
    )


def digest(policy: HostPolicy) -> str:
    """Return a name for these rules; none for rules that forbid nothing."""
    if not policy.quiet_hours and not policy.idle_only:
        return ""
    return hashlib.sha256(rules_of(policy).model_dump_json().encode()).hexdigest()[:16]


def is_told(world: World, host: Host) -> bool:
    """Whether a host goes by the manifest's rules, as far as its newest heartbeat tells."""
    wanted = digest(world.policy(host.name))
    return not wanted or (host.heartbeat is not None and host.heartbeat.rules == wanted)


def on_heartbeat(world: World, host: Host, heartbeat: Heartbeat, now: Now) -> None:
    """Tell a host the rules if it goes by others, every few seconds at most."""
    if world.fleet.plan is None or ("rules", host.name) in world.timers:
        return
    policy = world.policy(host.name)
    if digest(policy) != heartbeat.rules:
        request = Rules(id=world.new_id(), digest=digest(policy), rules=rules_of(policy))
        world.publish(world.topics.request(host.name), request)
        world.timers.set(("rules", host.name), now.mono_s + TELL_EVERY_S)


def on_plan(world: World, now: Now) -> None:
    """The manifest was read: tell every host that is there and goes by other rules."""
    for host in world.hosts.values():
        if host.online and host.heartbeat is not None:
            world.timers.cancel(("rules", host.name))
            on_heartbeat(world, host, host.heartbeat, now)


# Quarantine. A failure alone is no proof: the job may be at fault. It becomes one when the same job
# is completed on another host. Three such jobs, with nothing completed on the host in between, are
# enough.


def note_failure(world: World, host: str, job_id: str) -> None:
    """A job has failed on a host, for a reason that may be the host's."""
    evidence = world.evidence.setdefault(host, Evidence())
    evidence.failed[job_id] = None
    while len(evidence.failed) > MAX_FAILURES:
        del evidence.failed[next(iter(evidence.failed))]


def note_success(world: World, job: Job, now: Now) -> None:
    """A job is completed: that clears its host, and speaks against those on which it failed."""
    if job.host is None:
        return
    world.evidence.pop(job.host, None)
    for host, evidence in world.evidence.items():
        if job.job_id in evidence.failed:
            del evidence.failed[job.job_id]
            evidence.proven[job.job_id] = job.spec.name
            if len(evidence.proven) >= PROOFS:
                _quarantine(world, host, evidence, now)


def _quarantine(world: World, host: str, evidence: Evidence, now: Now) -> None:
    record = world.record(host)
    if record.quarantine:
        return
    names = (*evidence.proven.values(),)[:MOST_NAMES]
    world.remember(replace(record, quarantine=names, quarantine_at=now.text()))
    evidence.proven.clear()
