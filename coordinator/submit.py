"""Jobs that operators ask for beside the manifest.

Such a job is like any other, but that no reload takes it out of the plan: whoever has asked for it
cancels it. Asked for again, it is there already.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any, Final

from pydantic import JsonValue

from broker.clock import Now
from broker.messages import AskRun, OperatorResponse
from broker.topics import user_of
from coordinator import hostnames
from coordinator.answers import given, refusal
from coordinator.diff import spec_changes
from coordinator.jobs import Job
from coordinator.manifest import ManifestError, read_job
from coordinator.plan import JobSpec
from coordinator.planning import known_trainers
from coordinator.states import Event
from coordinator.world import World

MOST_ERRORS: Final = 100  # in the answer, which a packet has to hold


def on_run(world: World, client: str, ask: AskRun, now: Now) -> OperatorResponse:
    """Add a job, unless it is there already."""
    try:
        spec = read_job(ask.job, known_trainers(world))
    except ManifestError as error:
        errors: list[JsonValue] = [
            {"key": one.key, "message": one.message} for one in error.problems[:MOST_ERRORS]
        ]
        return refusal(ask.id, "bad_request", "the job has errors", {"errors": errors})
    if unknown := _unknown_hosts(world, spec):
        return refusal(ask.id, "bad_request", "the job has errors", {"errors": unknown})
    job, who = world.book.get(spec.job_id), user_of(client)
    if job is None or not job.in_plan:
        if job is not None and "name" not in ask.job:
            spec = replace(spec, name=job.spec.name)
        named = world.book.named(spec.name)
        namesake = next((one for one in named if one.in_plan and one.job_id != spec.job_id), None)
        if namesake is not None:
            message = f"{spec.name!r} is the name of job {namesake.job_id[:12]}; choose another"
            return refusal(
                ask.id, "bad_request", "the job has errors",
                {"errors": [{"key": "name", "message": message}]},
            )  # fmt: skip
    if job is None:
        job = world.book.add(spec, now, who, submitted_by=who)
        world.pending_since_s[job.job_id] = now.mono_s
        world.unsettled = True
        world.announce(job, now)
        return _said(ask, job, added=True)
    if job.in_plan:
        return _said(ask, job, differs=_what_differs(ask, job, spec))
    job = world.move(
        job, Event.ADOPTED, now, who, "asked for beside the manifest", in_plan=True,
        submitted_by=who, spec=spec,
    )  # fmt: skip
    return _said(ask, job, added=True)


def outcome(response: OperatorResponse) -> str:
    """Say in words what the answer to such a command holds; nothing where the job tells."""
    data: Any = response.data
    if isinstance(data, dict) and data.get("added") is False:
        return f"{data['name']} is there already, {data['state']}"
    return ""


def _unknown_hosts(world: World, spec: JobSpec) -> list[JsonValue]:
    """Return an error for each host that the job would wait for, and that nobody knows of.

    One that is yet to come is in the manifest.
    """
    if not spec.allowed_hosts:
        return []  # to know every host takes a look at every job
    declared = world.plan.hosts.keys() if world.plan else ()
    known = world.known_hosts()
    remedy = "(`fleet workers` shows them; one that is yet to come needs its [hosts.NAME] first)"
    unknown = (
        name for name in spec.allowed_hosts if known and name not in known and name not in declared
    )
    return [
        {
            "key": "allowed_hosts",
            "message": f"{hostnames.doubt(name, {*known, *declared})} {remedy}",
        }
        for name in islice(unknown, hostnames.MOST)
    ]


def _what_differs(ask: AskRun, job: Job, spec: JobSpec) -> list[str]:
    """Return what was asked for and is not so: the job stays as it is."""
    return [name for name, *_ in spec_changes(job.spec, spec) if name in ask.job]


def _said(
    ask: AskRun, job: Job, *, added: bool = False, differs: list[str] | None = None
) -> OperatorResponse:
    host = job.host if job.is_held else None
    data: dict[str, JsonValue] = {
        "job_id": job.job_id,
        "name": job.spec.name,
        "state": job.state.value,
        "host": host,
        "added": added,
        "differs": [*(differs or [])],
    }
    return given(ask.id, data)
