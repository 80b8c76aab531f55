"""What operators ask about the future: why a job waits, and what a prediction is made of.

The prediction itself is made by whoever asks (`forecast`): it may take seconds for a large plan,
and the coordinator has heartbeats to listen to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from typing import Any, Final

from pydantic import JsonValue

from broker.clock import Now
from broker.protocol.messages import AskPlan, WaitsFor
from coordinator.core import earlier_attempts
from coordinator.core.assignment import bring_up_to_date
from coordinator.core.authorization import Data, fitting, paged
from coordinator.core.host_views import explain, host_views, refusals, retry_wait_s, waited
from coordinator.core.state import World
from coordinator.jobs import job_progress
from coordinator.jobs.jobs import Job, claim_order
from coordinator.jobs.plan_entries import JobSpec, spec_to_dict
from coordinator.jobs.states import JobState
from coordinator.scheduler import explanation, unknown_hosts
from coordinator.scheduler.feasibility import Places, waits_for
from coordinator.scheduler.rules import Reason

MOST_NAMES: Final = 100  # of hosts that would suit a job in one way; of jobs that none could run
_OPTIONAL: Final = (
    "train_hosts", "allowed_hosts", "denied_hosts", "timeout_s", "stall_timeout_s"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chances:
    """What becomes of pending jobs of the plan, as if the fleet were not paused.

    `runnable` is how many could run, now, or once what holds them up has passed by itself. Those
    that `wait` could once somebody has done something: data is there, or a host resumed.
    `unplaceable`: nor then, as a revoked host is not resumed. Where no host is known, none could,
    and none counts as unplaceable: whoever comes may take it.
    """

    runnable: int = 0
    wait: tuple[Job, ...] = ()
    unplaceable: tuple[Job, ...] = ()


def chances(world: World, now: Now) -> Chances:
    """Return what becomes of the pending jobs. Of jobs that are alike one is judged."""
    bring_up_to_date(world, now)
    views = host_views(world, now)
    places = Places(views)
    runnable = 0
    wait: list[Job] = []
    hopeless: list[Job] = []
    for ids in world.queue.alike() if views else ():
        jobs = [world.book.known(job_id) for job_id in ids]
        what, hosts = places.soonest(jobs[0].spec)
        if what is None:
            hopeless += jobs
        elif waits_for(what, hosts) is None:
            runnable += len(jobs)
        else:
            wait += jobs
    return Chances(runnable, tuple(wait), tuple(hopeless))


def told(world: World, found: Chances, now: Now) -> Data:
    """Return as JSON values how many are `unplaceable`, or `waiting`, and the first of them."""
    first = nsmallest(MOST_NAMES, found.wait, key=claim_order)
    known = marks(world, first, now)
    waiting = [
        {**_name(job), "waits_for": waits.model_dump(mode="json")}
        for job in first
        if (waits := known.get(job.job_id)) is not None
    ]
    never = [_name(job) for job in nsmallest(MOST_NAMES, found.unplaceable, key=claim_order)]
    return {
        "unplaceable": {"count": len(found.unplaceable), "jobs": [*never]},
        "waiting": {"count": len(found.wait), "jobs": [*waiting]},
    }


def marks(world: World, jobs: Sequence[Job], now: Now) -> dict[str, WaitsFor | None]:
    """Return by id what jobs wait for that no host could run now; none: no host ever could."""
    waiting = [job for job in jobs if job.state is JobState.PENDING and job.in_plan]
    views = host_views(world, now) if waiting else []
    places = Places(views)
    found: dict[str, WaitsFor | None] = {}
    for job in waiting if views else ():
        what, hosts = places.soonest(job.spec)
        mark = waits_for(what, hosts)
        if mark is not None or what is None:
            found[job.job_id] = mark
    return found


def _name(job: Job) -> Data:
    return {"job_id": job.job_id, "name": job.spec.name}


def on_plan(world: World, _client: str, ask: AskPlan, now: Now) -> Data:
    """Return a page of `jobs` in claim order, their `total`, where the `next` page begins.

    With it comes `grace_s`, for how long a job that prefers CUDA waits, as `plans_grace_s` where it
    is the plan that says so, the plan's `name`, and why the fleet is `paused`, empty when it is
    not.
    """
    jobs = world.book.in_claim_order(*(JobState(state) for state in ask.states))
    handed_over = {one.job_id for one in world.expected.values()}
    rows, following = paged(
        jobs, ask, lambda job: _row(world, job, now, uses_slot=job.job_id not in handed_over)
    )
    return {
        "jobs": rows,
        "total": len(jobs),
        "next": following,
        "grace_s": world.grace_s(),
        "plans_grace_s": world.plans_grace_s(),
        "name": world.plan_name(),
        "paused": world.fleet.why_paused(),
    }


def why(world: World, job: Job, now: Now) -> Data:
    """Return what speaks against each host, clause by clause, and what would have to change.

    `known`, how many hosts were looked at, is there for a job that waits for one. `hopeless`: none
    of them can ever take it. `in_time`: one could by itself, if the fleet were not paused; else it
    may have something that it `waits_for`.
    """
    waits = job.state is JobState.PENDING and job.in_plan
    found = explain(world, job, now) if waits else []
    presence = {view.host: world.presence(world.hosts[view.host], now) for view, _ in found}
    fits = sum(1 for _, against in found if not against)
    judged = explanation.unpaused(found)
    in_time = bool(explanation.suitable(judged, presence))
    if in_time:
        judged = found  # that it goes on is what helps
    changes = explanation.remedies(job.spec, judged, world.grace_s()) if not fits else []
    suits = explanation.suitable(found, presence)
    if found and not suits and not changes:
        changes = [explanation.nearest(judged)]
    if found and not fits:
        changes = [*_misnamed(world, job), *changes]
    if waits and not fits:
        changes = [*changes, *_revoked(world, job)]
    mark = waits_for(*Places(view for view, _ in found).soonest(job.spec))
    return {
        "hosts": _nearest(found),
        "fits": fits,
        "hopeless": bool(found) and explanation.none_suits(found),
        "in_time": in_time,
        **({"waits_for": mark.model_dump(mode="json")} if mark else {}),
        "clauses": [
            one.to_dict()
            for one in (explanation.clauses(job.spec, found, presence) if found else [])
        ],
        **({"known": len(found)} if waits else {}),
        "suitable": {how: [*names[:MOST_NAMES]] for how, names in suits.items()},
        "suit": {how: len(names) for how, names in suits.items()},
        "remedies": [*changes],
    }


def _nearest(found: explanation.Explained) -> list[JsonValue]:
    """Return the hosts by name with the reasons against each; if too many, those with the least."""
    ranked = sorted(found, key=lambda one: sum(1 if r.passing else 100 for r in one[1]))
    rows: list[Any] = fitting(_against(view.host, against) for view, against in ranked)
    by_host = {row["host"]: row for row in rows}
    return [by_host[view.host] for view, _ in found if view.host in by_host]


def _against(host: str, against: Sequence[Reason]) -> Data:
    ordered = sorted(against, key=lambda reason: reason.passing)  # first what no waiting ends
    return {"host": host, "eligible": not against, "reasons": [one.text for one in ordered]}


def _misnamed(world: World, job: Job) -> list[str]:
    """Say which of its allowed_hosts nobody knows: they may be mistyped."""
    known = world.known_hosts()
    unknown = (name for name in job.spec.allowed_hosts if name not in known)
    told = islice(unknown, unknown_hosts.MOST)
    return [f"its allowed_hosts: {unknown_hosts.doubt(name, known)}" for name in told]


def _revoked(world: World, job: Job) -> list[str]:
    """Say which revoked hosts might take the job: what they are is not known any more."""
    allowed, denied = job.spec.allowed_hosts, job.spec.denied_hosts
    names = [
        name
        for name in sorted(world.revoked)
        if name in world.hosts and world.hosts[name].capability is None
        if name not in denied and (not allowed or name in allowed)
    ]
    return [
        f"after `fleet enroll {name} --replace`, {name} may take it: it is revoked, and what it is "
        "will be known once it is back"
        for name in names[:MOST_NAMES]
    ]


def _row(world: World, job: Job, now: Now, *, uses_slot: bool) -> Data:
    row: Data = {
        "spec": _compact(job.spec),
        "state": job.state.value,
        "in_plan": job.in_plan,
        "submitted_by": job.submitted_by,
        "host": job.host,
        "created_at": job.created_at,
    }
    if job.state is JobState.PENDING:
        row["waited_s"] = round(waited(world, job, now), 1)
        row["ready_in_s"] = round(retry_wait_s(world, job, now), 1)
        row["refused"] = {host: round(s, 1) for host, s in refusals(world, job, now).items()}
    elif job.is_held:
        row |= {"elapsed_s": round(job.elapsed_s(now), 1), "uses_slot": uses_slot}
        row |= _progress(world, job) | {"no_room": job.job_id in world.no_room}
    if (before := earlier_attempts.earlier(world, job)) is not None:
        row["earlier"] = before._asdict()
    return row


def _compact(spec: JobSpec) -> dict[str, Any]:
    """Return a spec without what it does not say: a plan may have ten thousand."""
    found = spec_to_dict(spec)
    found["needs"] = spec.needs.model_dump(mode="json", exclude_defaults=True)
    for name in _OPTIONAL:
        if not found[name]:
            del found[name]
    return found


def _progress(world: World, job: Job) -> Data:
    """Return how much of its training a job has done, and how long its trainer says it takes."""
    host = world.hosts.get(job.host or "")
    if host is None:
        return {}
    told = host.progress.get(job.job_id)
    return {"share": job_progress.trained(told), "eta_s": None if told is None else told.eta_s}
