"""What operators ask, one function a verb; the CLI and the web page are its clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import JsonValue
from pydantic_core import to_json

from broker.clock import Now, rfc3339
from broker.protocol.broker_load import strain
from broker.protocol.messages import (
    AskAttempts,
    AskCancel,
    AskCurves,
    AskDrain,
    AskEach,
    AskEvents,
    AskFetch,
    AskForget,
    AskIdentity,
    AskList,
    AskLogs,
    AskPause,
    AskPlan,
    AskReload,
    AskRequeue,
    AskResume,
    AskRun,
    AskShow,
    AskSnooze,
    AskStatus,
    AskTrainers,
    AskWhy,
    AskWorkers,
    BrokerLoad,
    Command,
    OperatorRequest,
    OperatorResponse,
    WaitsFor,
    Wire,
)
from broker.protocol.topics import user_of
from broker.sentences import counted
from coordinator.core import authority, downloads, earlier_attempts, filing, plan_changes
from coordinator.core.authority import given, moved, refusal, told_apart
from coordinator.core.commands import (
    certificate_commands,
    host_commands,
    host_list,
    prospects,
    stranded,
)
from coordinator.core.commands.host_commands import on_forget
from coordinator.core.effects import (
    AnswerWithAttempts,
    AnswerWithCurves,
    AnswerWithEvents,
    AnswerWithLog,
    AnswerWithStory,
    ReadManifest,
)
from coordinator.core.host_views import grace_left_s, retry_wait_s
from coordinator.core.state import Answer, World
from coordinator.core.stopping import tell_to_stop
from coordinator.core.uploads import take_kept
from coordinator.jobs import job_progress, set_aside
from coordinator.jobs.jobs import Job
from coordinator.jobs.plan_entries import spec_to_dict
from coordinator.jobs.records import AttemptFilter, StoryFilter
from coordinator.jobs.states import FINAL, Event, JobState
from coordinator.scheduler import explanation_layout


def on_request(
    world: World, client: str, ask: OperatorRequest, payload: bytes, now: Now
) -> None:  # fmt: skip
    """Answer a request. A command that was answered before is answered alike, not done twice.

    `payload` is the request as it came, which a signature is for.
    """
    if isinstance(ask, Command) and not authority.is_welcome(world, client, ask, payload, now):
        return
    key = authority.key_of(client, ask)
    if (earlier := world.answers.get(key)) is not None:
        if earlier.response is not None:
            authority.answer(world, client, earlier.response, now)
        return  # else its answer is on the way
    if isinstance(ask, Command):
        if authority.is_new(world, client, ask, now):
            carry_out(world, client, ask, now)
    elif (response := _HANDLERS[type(ask)](world, client, ask, now)) is not None:
        authority.reply(world, client, response)


def carry_out(world: World, client: str, ask: Command, now: Now) -> None:
    """Do what a command asks for; whether it may, the caller has looked. Record it, and answer."""
    response = _HANDLERS[type(ask)](world, client, ask, now)
    if response is None:
        world.answers[authority.key_of(client, ask)] = Answer(None, now.wall_s)
    else:
        authority.settle(world, client, ask, response, now, _outcome(client, ask, response, now))


def on_reloaded(
    world: World, client: str, response: OperatorResponse, now: Now, what: str
) -> None:  # fmt: skip
    """Answer a reload that was asked for; `what` came of it.

    The manifest may have been read twice for it, where the ledger refused what came of the first.
    """
    ask = AskReload(id=response.id)
    known = world.answers.get(authority.key_of(client, ask))
    if known is None or known.response is None:
        authority.settle(world, client, ask, response, now, what)


def _outcome(client: str, ask: Command, response: OperatorResponse, now: Now) -> str:
    """Say in words what an answer holds beyond what was asked for."""
    if isinstance(ask, AskIdentity):
        data: Any = response.data
        return certificate_commands.what_came(
            user_of(client), ask, data["jobs"] if data else (), now
        )
    if isinstance(ask, AskRun):
        return plan_changes.outcome(response)
    if isinstance(ask, AskEach):
        return _each_in_words(response)
    return host_commands.outcome(response)


def _on_status(world: World, _client: str, ask: AskStatus, now: Now) -> OperatorResponse:
    counts = world.book.counts()
    pending = prospects.chances(world, now) if counts["pending"] else prospects.Chances()
    data: dict[str, JsonValue] = {
        "jobs": dict(counts),
        "orphaned": counts["pending"] - world.book.planned()[JobState.PENDING],
        "hosts": host_counts(world),
        "coordinator": {
            "host": world.settings.machine,
            "version": world.settings.version,
            "started_at": world.settings.started_at,
            "now": now.text(),
            "plan": world.plan_name(),
            "manifest": world.settings.manifest,
            "manifest_fault": world.manifest_fault,
            "manifest_changed": world.manifest_changed,
            "session": world.session,
            "disk_fault": filing.fault(world, now),
        },
        "broker": {
            "address": world.settings.broker,
            "refused": _counts(world.broker_refused),
            "load": _load(world.broker_load),
        },
        "active": counts["claimed"] + counts["running"],
        "runnable": 0 if world.fleet.paused else pending.runnable,
        **prospects.told(world, pending, now),
        "starting": sum(one.online and not one.has_joined() for one in world.hosts.values()),
        "dropped": dict(world.dropped),
        "refused": dict(world.refused),
        "signed": world.settings.operator_key is not None,
        "paused": world.fleet.why_paused(),
        "restrained": host_commands.restrained(world),
        "away": stranded.jobs_away(world, now),
    }
    return given(ask.id, data)


def _counts(counts: dict[str, int] | None) -> JsonValue:
    return None if counts is None else {**counts}


def _load(load: BrokerLoad | None) -> JsonValue:
    if load is None:
        return None
    found = strain(load)
    said = None if found is None else f"{found.what}; {found.remedy}"
    return {**load.model_dump(exclude={"v"}), "strain": said}


def _on_list(world: World, _client: str, ask: AskList, now: Now) -> OperatorResponse:
    jobs = world.book.in_claim_order(*(JobState(state) for state in ask.states))
    if ask.models:
        models = {*ask.models}
        jobs = [job for job in jobs if job.spec.model in models]
    page = jobs[ask.offset : ask.offset + ask.limit]
    marks = prospects.marks(world, page, now)
    rows: list[JsonValue] = []
    size_bytes = 0
    for job in page:
        row = _row(world, job, marks, now)
        size_bytes += len(to_json(row))
        if rows and size_bytes > _PAGE_BYTES:
            break
        rows.append(row)
    end = ask.offset + len(rows)
    following = end if end < len(jobs) else None
    return given(ask.id, {"jobs": rows, "total": len(jobs), "next": following})


_PAGE_BYTES: Final = 150_000
_ASKED_CHARS: Final = 200  # as many of what was asked for are said again
_MESSAGE_CHARS: Final = 500  # of what is said to one of several jobs
BAD_INPUT: Final = "bad_input: "  # how a trainer's word begins that its input is at fault


def _on_show(world: World, client: str, ask: AskShow, now: Now) -> OperatorResponse | None:
    job = _find(world, ask)
    if isinstance(job, OperatorResponse):
        return job
    data: dict[str, JsonValue] = {
        **_row(world, job, prospects.marks(world, [job], now), now),
        "spec": spec_to_dict(job.spec),
        "losses": [job.losses, world.settings.max_attempts],
        "retries": [job.failures, job.spec.retries],
        "others": _others(world, job),
    }
    world.do(AnswerWithEvents(client, ask.id, job.job_id, data))
    return None


def _row(
    world: World, job: Job, marks: Mapping[str, WaitsFor | None], now: Now
) -> dict[str, JsonValue]:  # fmt: skip
    """Return all that an answer tells of a job; `marks` are those that no host could run now."""
    row: dict[str, JsonValue] = job.row().model_dump(mode="json")
    waits_for = marks.get(job.job_id)
    row["unplaceable"] = is_hopeless = job.job_id in marks and waits_for is None
    if waits_for is not None:
        row["waits_for"] = waits_for.model_dump(mode="json")
    if not is_hopeless and (left_s := grace_left_s(world, job, now)):
        row["awaits_cuda_s"] = round(left_s, 1)
    return {**row, **_going(world, job, now)}


def _going(world: World, job: Job, now: Now) -> dict[str, JsonValue]:
    """Return what its host says of a job: the trainer's progress, and what is being done."""
    host = world.hosts.get(job.host or "") if job.is_held else None
    progress = host.progress.get(job.job_id) if host else None
    listed = host.heartbeat.jobs if host and host.heartbeat else ()
    mine = (one for one in listed if (one.job_id, one.attempt) == (job.job_id, job.attempt))
    held = next(mine, None)
    share, left_s = job_progress.share(progress, held), earlier_attempts.left_s(world, job, now)
    return {
        "progress": None if progress is None else progress.model_dump(mode="json"),
        "held": None if held is None else {"phase": held.phase},
        "share": share,
        "away": stranded.away(world, job, now),
        **_no_room(world, job),
        **({} if left_s is None else {"left_s": round(left_s, 1)}),
    }


def _no_room(world: World, job: Job) -> dict[str, JsonValue]:
    """Return what the disk lacks for the result of a job, if that waits for room."""
    lack = world.no_room.get(job.job_id)
    return {} if lack is None else {"no_room": lack.model_dump(exclude={"jobs"})}


def _on_why(world: World, _client: str, ask: AskWhy, now: Now) -> OperatorResponse:
    job = _find(world, ask)
    if isinstance(job, OperatorResponse):
        return job
    found: dict[str, Any] = prospects.why(world, job, now)
    summary = _summary(world, job, found, now)
    told = {key: one for key, one in found.items() if key not in _FOR_THE_SUMMARY}
    data: dict[str, JsonValue] = {
        "job_id": job.job_id,
        "name": job.spec.name,
        "state": job.state.value,
        "others": _others(world, job),
        "summary": summary,
        **_no_room(world, job),
        **told,
    }
    return given(ask.id, data)


_FOR_THE_SUMMARY: Final = frozenset({"fits", "hopeless", "in_time"})


def _summary(world: World, job: Job, found: Mapping[str, Any], now: Now) -> str:
    match job.state:
        case JobState.PENDING:
            return _why_pending(world, job, found)
        case JobState.CLAIMED | JobState.RUNNING:
            on = f"it is {job.state.value} on {job.host}"
            if gone := stranded.away(world, job, now):
                return f"{on}, but {gone}"
            host = world.hosts.get(job.host or "")
            how = "" if host is None or host.online else f", which is {host.presence(now)}"
            return f"{on}{how}"
        case JobState.FAILED:
            return f"it failed: {job.error}; {_after_failure(job)}"
        case JobState.CANCELLED:
            return "it was cancelled; `fleet requeue` brings it back"
        case _:
            return f"it is {job.state.value}"


def _after_failure(job: Job) -> str:
    if job.artifact_id:
        return "`fleet requeue` takes the result, which came later"
    if (job.error or "").startswith(BAD_INPUT):
        return (
            "the same input would fail again: correct the manifest and `fleet reload`, or the "
            "host's data and `fleet requeue`"
        )
    return "`fleet requeue` tries again"


def _why_pending(world: World, job: Job, found: Mapping[str, Any]) -> str:
    if not job.in_plan:
        return "it is no longer in the manifest; put it back, or cancel it"
    known, paused = found["known"], world.fleet.why_paused()
    nobody = f"none of {known} known hosts can take it"
    if known == 1:
        nobody = "the only known host cannot take it"
    if paused:
        return paused if found["in_time"] or not known else f"{paused}, but {nobody} even then"
    if not known:
        return "no host is known yet; start an agent with `fleet agent`"
    if found["fits"]:
        return "it is about to be assigned"
    if found["hopeless"]:
        return nobody
    waits_for = found.get("waits_for")
    return (
        f"{nobody} now: it {explanation_layout.waits(waits_for)}" if waits_for else f"{nobody} now"
    )


def _on_logs(world: World, client: str, ask: AskLogs, _now: Now) -> OperatorResponse | None:
    job = _find(world, ask)
    if isinstance(job, OperatorResponse):
        return job
    name, others = job.spec.name, _others(world, job)
    world.do(AnswerWithLog(client, ask.id, job.job_id, name, job.attempt, ask.lines, others))
    return None


def _on_curves(world: World, client: str, ask: AskCurves, _now: Now) -> None:
    known = tuple(job_id for job_id in ask.jobs if world.book.get(job_id) is not None)
    world.do(AnswerWithCurves(client, ask.id, known))


def _on_workers(world: World, _client: str, ask: AskWorkers, now: Now) -> OperatorResponse:
    return given(ask.id, host_list.page(world, ask, now))


def _on_cancel(world: World, client: str, ask: AskCancel, now: Now) -> OperatorResponse:
    job = _find(world, ask)
    if isinstance(job, OperatorResponse):
        return job
    if job.state in FINAL:
        message = f"job {job.spec.name} is {job.state.value} already"
        return refusal(ask.id, "refused", message)
    after = world.move(job, Event.CANCELLED, now, user_of(client), "")
    _stop_holder(world, job, "cancelled", now)
    return moved(ask.id, after, others=_others(world, job))


def _on_requeue(world: World, client: str, ask: AskRequeue, now: Now) -> OperatorResponse:
    job = _find(world, ask)
    if isinstance(job, OperatorResponse):
        return job
    if job.state is JobState.PENDING:
        wait_s = retry_wait_s(world, job, now)
        more = f"; its retry begins in {wait_s:.0f} s" if wait_s else ""
        if not job.in_plan:
            more = (
                ", and is given to no host, being in no manifest: put it back and `fleet reload`, "
                "or `fleet cancel` it"
            )
        return refusal(ask.id, "refused", f"job {job.spec.name} is pending already{more}")
    if not job.in_plan:
        message = f"job {job.spec.name} is not in the manifest any more; put it back, and reload"
        return refusal(ask.id, "refused", message)
    who, kept = user_of(client), job.artifact_id
    share = set_aside.share_of(_going(world, job, now))
    lost = set_aside.set_aside(job.state.value, job.host, share, job.metrics, kept)
    after = world.move(
        job, Event.REQUEUED, now, who, lost, host=None, losses=0, failures=0, checkpoint=None
    )
    _stop_holder(world, job, "requeued", now)
    if job.state is JobState.FAILED and kept in world.stored:
        after = take_kept(world, job, after, now, who)
    told: dict[str, JsonValue] = {}
    if job.state is JobState.COMPLETED:
        keep_s = world.settings.keep_results_s
        told = {"artifact_id": kept, "attempt": job.attempt, "keep_results_s": keep_s}
    return moved(ask.id, after, others=_others(world, job), set_aside=lost, **told)


def _on_each(world: World, client: str, ask: AskEach, now: Now) -> OperatorResponse:
    """Cancel or requeue several jobs; the answer has a row for each, in the same order."""
    rows: list[JsonValue] = [_on_one(world, client, ask, text, now) for text in ask.jobs]
    return given(ask.id, {"jobs": rows})


def _on_one(
    world: World, client: str, ask: AskEach, text: str, now: Now
) -> dict[str, JsonValue]:  # fmt: skip
    """Cancel or requeue one of several jobs, and return the row that tells what came of it."""
    one = (AskCancel if ask.action == "cancel" else AskRequeue)(id=ask.id, job=text)
    job = _find(world, one)
    if isinstance(job, OperatorResponse):
        return {"ok": False, "code": job.code, "message": job.message[:_MESSAGE_CHARS]}
    known = {"job_id": job.job_id, "name": job.spec.name, "state": job.state.value}
    if ask.states and job.state.value not in ask.states:
        message = f"job {job.spec.name} is {job.state.value} by now, and left as it is"
        return {**known, "ok": False, "code": "refused", "message": message}
    act = _on_cancel if isinstance(one, AskCancel) else _on_requeue
    done = act(world, client, one, now)  # type: ignore[arg-type] # the two fit each other
    if done.ok and isinstance(done.data, dict):
        return {**done.data, "ok": True}
    return {**known, "ok": False, "code": done.code, "message": done.message[:_MESSAGE_CHARS]}


def _each_in_words(response: OperatorResponse) -> str:
    """Say for the record how many of several jobs a command has moved."""
    data: Any = response.data
    count = sum(row["ok"] for row in data["jobs"])
    refused = len(data["jobs"]) - count
    return counted(count, "job") + (f"; {refused} refused" if refused else "")


def _stop_holder(world: World, job: Job, why: str, now: Now) -> None:
    if job.is_held and job.host is not None:
        tell_to_stop(world, job.host, job.job_id, job.attempt, why, now)


def _on_reload(world: World, client: str, ask: AskReload, _now: Now) -> OperatorResponse | None:
    if world.settings.manifest is None:
        message = "the coordinator was started without --manifest; there is nothing to reload"
        return refusal(ask.id, "refused", message)
    world.do(ReadManifest(client, ask.id))
    return None


def _on_events(world: World, client: str, ask: AskEvents, _now: Now) -> OperatorResponse | None:
    job = None if ask.job is None else _find(world, ask)
    if isinstance(job, OperatorResponse):
        return job
    wanted = StoryFilter(
        since=None if ask.since is None else rfc3339(ask.since),
        job_id=None if job is None else job.job_id,
        host=ask.host,
        who=ask.who,
        after=ask.after,
        limit=ask.limit,
    )
    world.do(AnswerWithStory(client, ask.id, wanted))
    return None


def _on_plan(world: World, _client: str, ask: AskPlan, now: Now) -> OperatorResponse:
    return given(ask.id, prospects.plan_page(world, ask, now))


def _on_attempts(world: World, client: str, ask: AskAttempts, _now: Now) -> None:
    since = None if ask.since is None else rfc3339(ask.since)
    wanted = AttemptFilter(since, ask.before, ask.ends, ask.limit, ask.after)
    world.do(AnswerWithAttempts(client, ask.id, wanted))


def _on_trainers(world: World, _client: str, ask: AskTrainers, _now: Now) -> OperatorResponse:
    return given(ask.id, {"trainers": {**plan_changes.told_trainers(world)}})


def _on_fetch(world: World, client: str, ask: AskFetch, now: Now) -> OperatorResponse | None:
    job = _find(world, ask)
    if isinstance(job, OperatorResponse):
        return job
    return downloads.on_fetch(world, client, ask, job, now)


def host_counts(world: World) -> dict[str, JsonValue]:
    """Return how many hosts are online and offline."""
    online = sum(host.online for host in world.hosts.values())
    return {"online": online, "offline": len(world.hosts) - online}


def _find(world: World, ask: Any) -> Job | OperatorResponse:
    jobs = world.book.find(ask.job)
    if len(jobs) == 1:
        return jobs[0]
    asked = f"{ask.job[:_ASKED_CHARS]!r}"  # which may write each character in ten
    if not jobs:
        message = f"no job has the name or id {asked}; `fleet list` shows them"
        return refusal(ask.id, "not_found", message)
    names = ", ".join(sorted(f"{job.spec.name} ({job.job_id[:12]})" for job in jobs)[:8])
    more = f" and {len(jobs) - 8} more" if len(jobs) > 8 else ""
    alike = len({job.spec.name for job in jobs}) == 1
    remedy = "give the id of one" if alike else "write more of it"
    return refusal(ask.id, "refused", f"{asked} may mean {names}{more}; {remedy}")


def _others(world: World, job: Job) -> list[JsonValue]:
    return told_apart(world.book.namesakes(job))


_HANDLERS: Final[dict[type[Wire], Callable[[World, str, Any, Now], OperatorResponse | None]]] = {
    AskStatus: _on_status,
    AskList: _on_list,
    AskShow: _on_show,
    AskWhy: _on_why,
    AskLogs: _on_logs,
    AskCurves: _on_curves,
    AskWorkers: _on_workers,
    AskCancel: _on_cancel,
    AskRequeue: _on_requeue,
    AskDrain: host_commands.on_drain,
    AskResume: host_commands.on_resume,
    AskSnooze: host_commands.on_snooze,
    AskPause: host_commands.on_pause,
    AskForget: on_forget,
    AskRun: plan_changes.on_run,
    AskEach: _on_each,
    AskReload: _on_reload,
    AskEvents: _on_events,
    AskPlan: _on_plan,
    AskAttempts: _on_attempts,
    AskTrainers: _on_trainers,
    AskFetch: _on_fetch,
    AskIdentity: certificate_commands.on_told,
}
