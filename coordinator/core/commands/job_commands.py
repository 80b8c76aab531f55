"""What operators ask about jobs, and do to them: list, show, why, cancel, requeue."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from pydantic import JsonValue

from broker.clock import Now
from broker.protocol import messages as m
from broker.protocol.topics import user_of
from coordinator.core import assignment, catalogue, programs, run_times
from coordinator.core.authorization import Data, RequestRefused, paged, refused
from coordinator.core.commands import prospects
from coordinator.core.effects import LookUp
from coordinator.core.finding import find, others
from coordinator.core.host_views import grace_left_s, retry_wait_s
from coordinator.core.state import World
from coordinator.core.stopping import tell_to_stop
from coordinator.core.stored_artifacts import take_kept
from coordinator.core.successors import before
from coordinator.jobs import causes, job_progress, result_words
from coordinator.jobs.causes import Cause, cause
from coordinator.jobs.jobs import Job
from coordinator.jobs.plan_entries import spec_to_dict
from coordinator.jobs.states import FINAL, Event, JobState

AWAY_SHOWN: Final = 8


def on_list(world: World, _client: str, ask: m.AskList, now: Now) -> Data:
    """Return a page of the jobs in claim order."""
    jobs = world.book.in_claim_order(*(JobState(state) for state in ask.states))
    if ask.models:
        models = {*ask.models}
        jobs = [job for job in jobs if job.spec.model in models]
    marks = prospects.marks(world, jobs[ask.offset : ask.offset + ask.limit], now)
    rows, following = paged(jobs, ask, lambda job: _row(world, job, marks, now))
    return {"jobs": rows, "total": len(jobs), "next": following}


def on_show(world: World, client: str, ask: m.AskShow, now: Now) -> None:
    """Answer with all that is known of a job, its history as well."""
    job = find(world, ask.job)
    data: Data = {
        **_row(world, job, prospects.marks(world, [job], now), now),
        "spec": spec_to_dict(job.spec),
        **catalogue.told_data(world, job.spec),
        "losses": [job.losses, world.settings.max_attempts],
        "retries": [job.failures, job.spec.retries],
        "others": others(world, job),
        "predecessors": _predecessors(world, job),
    }
    world.do(LookUp(client, ask, (job.job_id,), data))


def _predecessors(world: World, job: Job) -> list[JsonValue]:
    """Return the jobs before a job, each with the `input` that its artifact is, if it is one."""
    links = [*job.spec.inputs.items(), *((None, job_id) for job_id in job.spec.after)]
    found = ((name, job_id, before(world, job_id)) for name, job_id in links)
    return [
        {"input": name, "job_id": job_id, "name": one and one.name, "state": one and one.state}
        for name, job_id, one in found
    ]


def _row(
    world: World, job: Job, marks: Mapping[str, m.WaitsFor | None], now: Now
) -> Data:  # fmt: skip
    """Return all that an answer tells of a job; `marks` are those that no host could run now."""
    row: Data = job.row().model_dump(mode="json")
    waits_for = marks.get(job.job_id)
    row["unplaceable"] = is_hopeless = job.job_id in marks and waits_for is None
    if waits_for is not None:
        row["waits_for"] = waits_for.model_dump(mode="json")
    if not is_hopeless and (left_s := grace_left_s(world, job, now)):
        row["awaits_cuda_s"] = round(left_s, 1)
    return {**row, **_going(world, job, now)}


def _going(world: World, job: Job, now: Now) -> Data:
    """Return what its host and trainer say of a job, and what the result of it waits for."""
    host = world.hosts.get(job.host or "") if job.is_held else None
    progress = host.progress.get(job.job_id) if host else None
    listed = host.heartbeat.jobs if host and host.heartbeat else ()
    mine = (one for one in listed if (one.job_id, one.attempt) == (job.job_id, job.attempt))
    held = next(mine, None)
    share, left_s = job_progress.share(progress, held), run_times.left_s(world, job, now)
    lack = world.no_room.get(job.job_id)  # what the disk lacks for its result, if that waits for it
    return {
        "progress": None if progress is None else progress.model_dump(mode="json"),
        "held": None if held is None else held.model_dump(mode="json", include={"phase", "fault"}),
        "share": share,
        "away": away(world, job, now),
        **({} if lack is None else {"no_room": lack.model_dump(exclude={"jobs"})}),
        **({} if left_s is None else {"left_s": round(left_s, 1)}),
    }


def on_why(world: World, _client: str, ask: m.AskWhy, now: Now) -> Data:
    """Return why a job is not running; what can be assigned is assigned first."""
    assignment.settle(world, now)
    job = find(world, ask.job)
    host = world.hosts.get(job.host or "") if job.is_held else None
    return {
        **_known(job),
        "in_plan": job.in_plan,
        "others": others(world, job),
        "host": job.host,
        "presence": None if host is None or host.online else host.presence(now),
        "error": job.error,
        "error_kind": job.error_kind,
        "artifact_id": job.artifact_id,
        **catalogue.told_data(world, job.spec),
        **_going(world, job, now),
        **prospects.why(world, job, now),
    }


def on_cancel(world: World, client: str, ask: m.AskCancel, now: Now) -> Data:
    """End a job that is not over."""
    return _cancel(world, client, find(world, ask.job), now)


def _cancel(world: World, client: str, job: Job, now: Now) -> Data:
    if job.state in FINAL:
        raise refused("over_already", name=job.spec.name, state=job.state.value)
    after = world.move(job, Event.CANCELLED, now, user_of(client))
    _stop_holder(world, job, "cancelled", now)
    return {**_known(after), "others": others(world, job)}


def on_requeue(world: World, client: str, ask: m.AskRequeue, now: Now) -> Data:
    """Have a job begin again."""
    return _requeue(world, client, find(world, ask.job), now)


def _requeue(world: World, client: str, job: Job, now: Now) -> Data:
    if job.state is JobState.PENDING:
        wait_s = retry_wait_s(world, job, now)
        raise refused(
            "pending_already", name=job.spec.name, in_plan=job.in_plan, wait_s=round(wait_s, 1)
        )
    if not job.in_plan:
        raise refused("not_in_plan", name=job.spec.name)
    if job.spec.program is not None and catalogue.program_of(world, job.spec) is None:
        raise refused("program_gone", name=job.spec.model, digest=job.spec.program.digest)
    if (lost_data := catalogue.gone(world, job.spec)) is not None:
        raise refused("data_gone", name=lost_data.name, digest=lost_data.digest)
    who, kept = user_of(client), job.artifact_id
    share = result_words.share_of(_going(world, job, now))
    lost = causes.set_aside(job.state.value, job.host, share, job.metrics, kept)
    if job.spec.program is not None:
        programs.trust_anew(world, job.spec.program.digest)
    after = world.move(
        job, Event.REQUEUED, now, who, lost, host=None, losses=0, failures=0, checkpoint=None
    )
    _stop_holder(world, job, "requeued", now)
    if job.state is JobState.FAILED and kept in world.stored:
        after = take_kept(world, job, after, now, who)
    told: Data = {}
    if job.state is JobState.COMPLETED and world.stored.get(kept or ""):  # 0: its file was emptied
        keep_s = world.settings.keep_results_s
        told = {"artifact_id": kept, "attempt": job.attempt, "keep_results_s": keep_s}
    return {**_known(after), "others": others(world, job), "set_aside": {**lost}, **told}


def on_each(world: World, client: str, ask: m.AskEach, now: Now) -> Data:
    """Cancel or requeue several jobs; the answer has a row for each, in the same order."""
    rows: list[JsonValue] = [_on_one(world, client, ask, text, now) for text in ask.jobs]
    return {"jobs": rows}


def _on_one(
    world: World, client: str, ask: m.AskEach, text: str, now: Now
) -> Data:  # fmt: skip
    """Cancel or requeue one of several jobs, and return the row that tells what came of it."""
    known: Data = {}
    try:
        job = find(world, text)
        known = _known(job)
        if ask.states and job.state.value not in ask.states:
            raise refused("moved", name=job.spec.name, state=job.state.value)
        act = _cancel if ask.action == "cancel" else _requeue
        done = act(world, client, job, now)
    except RequestRefused as refusal:
        return {**known, "ok": False, "code": refusal.code, "why": refusal.why}
    return {**done, "ok": True}


def outcome_of_each(data: Any) -> Cause:
    """Return for the record how many of several jobs a command has moved."""
    done = sum(row["ok"] for row in data["jobs"])
    return cause("each", done=done, refused=len(data["jobs"]) - done)


def _known(job: Job) -> Data:
    return {"job_id": job.job_id, "name": job.spec.name, "state": job.state.value}


def _stop_holder(world: World, job: Job, why: str, now: Now) -> None:
    if job.is_held and job.host is not None:
        tell_to_stop(world, job.host, job.job_id, job.attempt, why, now)


def away(world: World, job: Job, now: Now) -> dict[str, JsonValue] | None:
    """Return what becomes of a job whose host is away, and when; none where no host has it."""
    host = world.hosts.get(job.host or "")
    lost_at_s = world.timers.when_s(("lease", job.job_id))
    if not job.is_held or host is None or host.online or lost_at_s is None:
        return None
    # Of two agents of one name, who said goodbye need not be the one that has the job.
    presence = "twin" if host.may_have_twin(now) else host.presence(now)
    return {
        "host": host.name,
        "presence": presence,
        "left_s": round(max(0.0, lost_at_s - now.mono_s), 1),
        "is_last": job.losses + 1 >= world.settings.max_attempts,
    }


def jobs_held_up(world: World) -> list[JsonValue]:
    """Return the first jobs whose results cannot be bundled now, each with its host and why."""
    found: list[JsonValue] = []
    for name, host in sorted(world.hosts.items()):
        for held in host.heartbeat.jobs if host.heartbeat else ():
            job = world.book.get(held.job_id)
            if held.fault is not None and job is not None:
                found.append({"job": job.spec.name, "host": name, "fault": held.fault.told()})
    return found[:AWAY_SHOWN]


def jobs_away(world: World, now: Now) -> list[JsonValue]:
    """Return the first jobs whose hosts are away, by name of the host, each with what to expect."""
    gone = sorted(host.name for host in world.hosts.values() if not host.online)
    found = ((job, away(world, job, now)) for name in gone for job in world.book.held_by(name))
    some = islice(((job, told) for job, told in found if told), AWAY_SHOWN)
    return [{**told, "job": job.spec.name} for job, told in some]
