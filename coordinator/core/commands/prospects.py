"""What operators ask about the future: why a job waits, and what a prediction is made of.

The prediction itself is made by whoever asks (`forecast`): it may take seconds for a large plan,
and the coordinator has heartbeats to listen to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from heapq import nsmallest
from itertools import islice
from typing import Any, Final

from pydantic import JsonValue

from broker.clock import Now
from broker.protocol.messages import AskPlan, WaitsFor
from broker.protocol.reasons import Reason
from coordinator.core import successors
from coordinator.core.assignment import bring_up_to_date
from coordinator.core.authorization import Data, fitting, paged
from coordinator.core.host_views import explain, host_views, refusals, retry_wait_s, waited
from coordinator.core.state import World
from coordinator.jobs import job_progress
from coordinator.jobs.hosts import Holdback
from coordinator.jobs.jobs import Job, claim_order
from coordinator.jobs.plan_entries import JobSpec, spec_to_dict
from coordinator.jobs.reasons import NATURES, UNUSABLE, Wait, wait
from coordinator.jobs.states import JobState
from coordinator.scheduler import explanation, precedence, unknown_hosts
from coordinator.scheduler.feasibility import Places, named, waits_for

MOST_NAMES: Final = 100  # of hosts that would suit a job in one way; of jobs that none could run
MOST_BEFORE: Final = 20  # jobs before one that are named
_AGAIN: Final = frozenset({"failed", "cancelled", "gone"})  # what a requeue mends
_OPTIONAL: Final = tuple(one.name for one in fields(JobSpec) if one.default in {(), None})


@dataclass(frozen=True, slots=True)
class Chances:
    """What becomes of pending jobs of the plan, as if the fleet were not paused.

    `runnable` is how many could run, now, or once what holds them up has passed by itself. Those
    that `wait` could once somebody has done something: data is there, or a host resumed; those
    `behind` others once these are completed.
    `unusable` are of the runnable ones: no host could use what they need, and they are tried again.
    `unplaceable`: nor then, as a revoked host is not resumed. Where no host is known, none could,
    and none counts as unplaceable: whoever comes may take it.
    """

    runnable: int = 0
    wait: tuple[tuple[Job, WaitsFor], ...] = ()
    unplaceable: tuple[Job, ...] = ()
    behind: tuple[Job, ...] = ()
    unusable: tuple[tuple[Job, WaitsFor], ...] = ()


def chances(world: World, now: Now) -> Chances:
    """Return what becomes of the pending jobs. Of jobs that are alike one is judged."""
    bring_up_to_date(world, now)
    views = host_views(world, now)
    places = Places(views)
    runnable = 0
    wait: list[tuple[Job, WaitsFor]] = []
    unusable: list[tuple[Job, WaitsFor]] = []
    hopeless: list[Job] = []
    for ids in world.queue.alike() if views else ():
        jobs = [world.book.known(job_id) for job_id in ids]
        awaits, hosts = places.soonest(jobs[0].spec)
        if (mark := waits_for(awaits, hosts)) is not None:
            wait += [(job, mark) for job in jobs]
        elif awaits is Wait.EVER:
            hopeless += jobs
        else:
            runnable += len(jobs)
            found = ((job, _unusable(world, job, hosts)) for job in jobs)
            unusable += [(job, mark) for job, mark in found if mark is not None]
    behind = tuple(map(world.book.known, world.behind))
    return Chances(runnable, tuple(wait), tuple(hopeless), behind, tuple(unusable))


def told(world: World, found: Chances) -> Data:
    """Return as JSON values how many are `unplaceable`, or `waiting`, and the first of them."""
    behind = nsmallest(MOST_NAMES, found.behind, key=claim_order)
    marked = [(job, mark) for job in behind if (mark := _behind(world, job)) is not None]
    marked += found.unusable
    wait = nsmallest(MOST_NAMES, (*found.wait, *marked), key=lambda one: claim_order(one[0]))
    never = nsmallest(MOST_NAMES, found.unplaceable, key=claim_order)
    waiting = [{**_name(job), "waits_for": mark.model_dump(mode="json")} for job, mark in wait]
    return {
        "unplaceable": {"count": len(found.unplaceable), "jobs": [*map(_name, never)]},
        "waiting": {
            "count": len(found.wait) + len(found.behind) + len(found.unusable),
            "jobs": [*waiting],
        },
    }


def marks(world: World, jobs: Sequence[Job], now: Now) -> dict[str, WaitsFor | None]:
    """Return by id what jobs wait for that no host could run now; none: no host ever could."""
    found: dict[str, WaitsFor | None] = {}
    waiting = [job for job in jobs if job.state is JobState.PENDING and job.in_plan]
    views = host_views(world, now) if waiting else []
    places = Places(views)
    for job in waiting:
        if (mark := _behind(world, job)) is not None:
            found[job.job_id] = mark
        if not views or mark is not None:
            continue
        awaits, hosts = places.soonest(job.spec)
        if not awaits.passes:
            found[job.job_id] = waits_for(awaits, hosts)
        elif (mark := _unusable(world, job, hosts)) is not None:
            found[job.job_id] = mark
    return found


def _unusable(world: World, job: Job, hosts: Sequence[str]) -> WaitsFor | None:
    """Return what a job needs that none of the hosts could use which it may have; none: one may."""
    refused = world.holdbacks.get(job.job_id, {})
    lacks = [one for host in hosts if host in refused and (one := _lack(refused[host]))]
    if not hosts or len(lacks) < len(hosts):
        return None
    told = {"what": lacks[0].code, "fault": lacks[0].figures.get("fault")}
    return WaitsFor.model_validate(named(hosts) | told)


def _lack(held_back: Holdback) -> Reason | None:
    """Return what a host could not use of what a job needs; none: it refused it otherwise."""
    return next((one for one in held_back.reasons if one.code in UNUSABLE), None)


def _behind(world: World, job: Job) -> WaitsFor | None:
    """Return which job a pending one waits for, if it does."""
    return precedence.waits_for(successors.unmet(world, job))


def _name(job: Job) -> Data:
    return {"job_id": job.job_id, "name": job.spec.name}


def on_plan(world: World, _client: str, ask: AskPlan, now: Now) -> Data:
    """Return a page of `jobs` in claim order, their `total`, where the `next` page begins.

    With it comes `grace_s`, for how long a job that prefers CUDA waits, as `plans_grace_s` where it
    is the plan that says so, the plan's `name`, and why the fleet is `paused`, none when it is
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
        "name": world.plan.name,
        "paused": world.fleet.told(),
    }


def why(world: World, job: Job, now: Now) -> Data:
    """Return what speaks against each host, clause by clause, and what would have to change.

    `known`, how many hosts were looked at, is there for a pending job: none behind one that does
    not go on. `hopeless`: none of them can ever take it. `in_time`: one could by itself, if the
    fleet were not paused; else it may have something that it `waits_for`. `predecessors` are the
    first reasons of jobs before it, which are told once and not host by host, `predecessor_count`
    how many there are.
    """
    waits = job.state is JobState.PENDING and job.in_plan
    before = [*successors.unmet(world, job)] if waits else []
    # Behind a job that does not go on no host will have it in time.
    found = explain(world, job, now) if waits and wait(before).passes else []
    suits = explanation.suitable(found)
    judged = explanation.unpaused(found)
    awaits, hosts = explanation.awaited(judged)
    # Where it is the pause alone, that it goes on is what helps.
    helps = found if awaits.passes else judged
    changes = _changes(world, job, helps) if waits else []
    mark = precedence.waits_for(before) or waits_for(awaits, hosts) or _unusable(world, job, hosts)
    return {
        "predecessors": [*(one.to_dict() for one in before[:MOST_BEFORE])],
        "predecessor_count": len(before),
        "paused": world.fleet.told(),
        "hosts": _nearest(found),
        "hopeless": bool(found) and awaits is Wait.EVER,
        "in_time": max(awaits, wait(before)).passes,
        **({"waits_for": mark.model_dump(mode="json")} if mark else {}),
        "clauses": [*(explanation.clauses(job.spec, found) if found else [])],
        **({"known": len(found)} if waits else {}),
        "suitable": {how: [*names[:MOST_NAMES]] for how, names in suits.items()},
        "suit": {how: len(names) for how, names in suits.items()},
        "remedies": [*changes],
    }


def _changes(world: World, job: Job, found: explanation.Explained) -> list[Data]:
    """Return what would open hosts to a job that none takes now."""
    again = [
        {"code": "requeue", "job": one.figures["job"]}
        for one in islice(successors.unmet(world, job), MOST_BEFORE)
        if one.figures["state"] in _AGAIN
    ]
    changes = explanation.remedies(job.spec, found)
    if not changes and not explanation.suitable(found):
        changes = [*filter(None, [explanation.nearest(found)])]
    misnamed = _misnamed(world, job) if found else []
    return [*again, *misnamed, *changes, *_revoked(world, job)]


def _nearest(found: explanation.Explained) -> list[JsonValue]:
    """Return the hosts by name with the reasons against each; if too many, those with the least."""
    ranked = sorted(found, key=lambda one: sum(1 if _passes(r) else 100 for r in one[1]))
    rows: list[Any] = fitting(_against(view.host, against) for view, against in ranked)
    by_host = {row["host"]: row for row in rows}
    return [by_host[view.host] for view, _ in found if view.host in by_host]


def _against(host: str, against: Sequence[Reason]) -> Data:
    ordered = sorted(against, key=_passes)  # first what no waiting ends
    return {"host": host, "reasons": [one.to_dict() for one in ordered]}


def _passes(reason: Reason) -> bool:
    return NATURES[reason.code].wait.passes


def _misnamed(world: World, job: Job) -> list[Data]:
    """Return which of its allowed_hosts nobody knows: they may be mistyped."""
    found = unknown_hosts.allowed(job.spec, world.known_hosts())
    return [{"code": "misnamed", "name": name, "meant": close} for name, close in found]


def _revoked(world: World, job: Job) -> list[Data]:
    """Return which revoked hosts might take the job: what they are is not known any more."""
    hosts = world.hosts
    blank = (name for name in world.revoked if name in hosts and hosts[name].capability is None)
    names = sorted(job.spec.admits(blank))[:MOST_NAMES]
    return [{"code": "enroll-unknown", "hosts": [name], "count": 1} for name in names]


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
        is_behind = job.job_id in world.behind  # its grace has not begun
        row["waited_s"] = 0.0 if is_behind else round(waited(world, job, now), 1)
        row["ready_in_s"] = round(retry_wait_s(world, job, now), 1)
        lasting = (one for one in successors.unmet(world, job) if one.code == precedence.LASTS)
        row["behind"] = [*(one.to_dict() for one in islice(lasting, MOST_BEFORE))]
        row["refused"] = {host: round(s, 1) for host, s in refusals(world, job, now).items()}
    elif job.is_held:
        row |= {"elapsed_s": round(job.elapsed_s(now), 1), "uses_slot": uses_slot}
        row |= _progress(world, job) | {"no_room": job.job_id in world.no_room}
    refused = world.holdbacks.get(job.job_id, {})
    if unusable := {host: one.to_dict() for host in refused if (one := _lack(refused[host]))}:
        row["unusable"] = {**unusable}
    return row


def _compact(spec: JobSpec) -> dict[str, Any]:
    """Return a spec without what it does not say: a plan may have ten thousand."""
    found = spec_to_dict(spec)
    found["needs"] = spec.needs.model_dump(mode="json", exclude_defaults=True)
    for name in _OPTIONAL:
        if not found.get(name):
            found.pop(name, None)
    return found


def _progress(world: World, job: Job) -> Data:
    """Return how much of its training a job has done, since when, and its trainer's ETA."""
    host = world.hosts.get(job.host or "")
    if host is None:
        return {}
    told = host.progress.get(job.job_id)
    return {
        "share": job_progress.trained(told),
        "begun": job_progress.begun(told),
        "eta_s": None if told is None else told.eta_s,
    }
