"""What operators ask about the future: why a job waits, and what a prediction is made of.

The prediction itself is made by whoever asks (`forecast`): it may take seconds for a large plan,
and the coordinator has heartbeats to listen to.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from pydantic import JsonValue

from broker.clock import Now
from broker.messages import AskPlan
from coordinator import analysis
from coordinator.assignment import explain, retry_wait_s, waited
from coordinator.jobs import Job
from coordinator.plan import JobSpec, spec_to_dict
from coordinator.states import JobState
from coordinator.world import World

PAGE_CHARS: Final = 150_000
_OPTIONAL: Final = (
    "train_hosts", "allowed_hosts", "denied_hosts", "timeout_s", "stall_timeout_s"
)  # fmt: skip


def plan_page(world: World, ask: AskPlan, now: Now) -> dict[str, JsonValue]:
    """Return a page of `jobs` in claim order, their `total`, where the `next` page begins.

    With it comes `grace_s`, for how long a job that prefers CUDA waits.
    """
    jobs = world.book.in_claim_order(*(JobState(state) for state in ask.states))
    handed_over = {one.job_id for one in world.expected.values()}
    rows: list[JsonValue] = []
    size_chars = 0
    for job in jobs[ask.offset : ask.offset + ask.limit]:
        row = _row(world, job, now, uses_slot=job.job_id not in handed_over)
        size_chars += len(str(row))
        if rows and size_chars > PAGE_CHARS:
            break
        rows.append(row)
    end = ask.offset + len(rows)
    return {
        "jobs": rows,
        "total": len(jobs),
        "next": end if end < len(jobs) else None,
        "grace_s": world.grace_s(),
    }


def why(world: World, job: Job, now: Now) -> dict[str, JsonValue]:
    """Return what speaks against each host, clause by clause, and what would have to change."""
    waits = job.state is JobState.PENDING and job.in_plan
    found = explain(world, job, now) if waits else []
    presence = {view.host: world.hosts[view.host].presence(now) for view, _ in found}
    fits = sum(1 for _, against in found if not against)
    changes = analysis.remedies(job.spec, found, world.grace_s()) if not fits else []
    suits = analysis.suitable(found, presence)
    if found and not suits and not changes:
        changes = [analysis.nearest(found)]
    return {
        "hosts": [
            {
                "host": view.host,
                "eligible": not against,
                "reasons": [reason.text for reason in against],
            }
            for view, against in found
        ],
        "clauses": [one.to_dict() for one in analysis.clauses(job.spec, found, presence)],
        "known": len(found),
        "suitable": {how: [*names] for how, names in suits.items()},
        "remedies": [*changes],
    }


def _row(world: World, job: Job, now: Now, *, uses_slot: bool) -> dict[str, JsonValue]:
    row: dict[str, JsonValue] = {
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
    elif job.is_held:
        row |= {"elapsed_s": _elapsed_s(job, now), "uses_slot": uses_slot}
        row |= _progress(world, job)
    return row


def _compact(spec: JobSpec) -> dict[str, Any]:
    """Return a spec without what it does not say: a plan may have ten thousand."""
    found = spec_to_dict(spec)
    found["needs"] = spec.needs.model_dump(mode="json", exclude_defaults=True)
    for name in _OPTIONAL:
        if not found[name]:
            del found[name]
    return found


def _elapsed_s(job: Job, now: Now) -> float:
    if job.started_at is None:
        return 0.0
    return round(max(0.0, now.wall_s - datetime.fromisoformat(job.started_at).timestamp()), 1)


def _progress(world: World, job: Job) -> dict[str, JsonValue]:
    """Return how far a job is: by its trainer's word, and by its host's newest heartbeat."""
    host = world.hosts.get(job.host or "")
    if host is None:
        return {}
    told = host.progress.get(job.job_id)
    listed = host.heartbeat.jobs if host.heartbeat else ()
    share = next((one.progress for one in listed if one.job_id == job.job_id), None)
    return {"share": share, "eta_s": None if told is None else told.eta_s}
