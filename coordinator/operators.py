"""What operators ask, one function a verb; the CLI and the web page are its clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from pydantic import JsonValue

from broker.clock import Now, rfc3339
from broker.messages import (
    AskCancel,
    AskDrain,
    AskEvents,
    AskFetch,
    AskList,
    AskLogs,
    AskReload,
    AskRequeue,
    AskResume,
    AskShow,
    AskStatus,
    AskTrainers,
    AskWhy,
    AskWorkers,
    Command,
    OperatorRequest,
    OperatorResponse,
    Wire,
)
from broker.topics import user_of
from coordinator import authority, downloads
from coordinator.assignment import could_run, explain, retry_wait_s, tell_to_stop
from coordinator.effects import AnswerWithEvents, AnswerWithLog, AnswerWithStory, ReadManifest
from coordinator.handover import take_kept
from coordinator.hosts import Host
from coordinator.jobs import Job
from coordinator.plan import policy_to_dict, spec_to_dict
from coordinator.records import HostRecord, StoryFilter
from coordinator.states import FINAL, Event, JobState
from coordinator.world import Answer, World


def on_request(
    world: World, client: str, ask: OperatorRequest, payload: bytes, now: Now
) -> None:  # fmt: skip
    """Answer a request. A command that was answered before is answered alike, not done twice.

    `payload` is the request as it came, which a signature is for.
    """
    if isinstance(ask, Command) and not authority.is_welcome(world, client, ask, payload, now):
        return
    if (earlier := world.answers.get((client, ask.id))) is not None:
        if earlier.response is not None:
            authority.reply(world, client, earlier.response)
        return  # else its answer is on the way
    if isinstance(ask, Command):
        if not authority.is_new(world, client, ask, now):
            return
        world.answers[(client, ask.id)] = Answer(None, now.wall_s)
    response = _HANDLERS[type(ask)](world, client, ask, now)
    if response is None:
        return
    if isinstance(ask, Command):
        authority.settle(world, client, ask, response, now, _outcome(response))
    else:
        authority.reply(world, client, response)


def on_reloaded(
    world: World, client: str, response: OperatorResponse, now: Now, what: str
) -> None:  # fmt: skip
    """Answer a reload that was asked for; `what` came of it."""
    authority.settle(world, client, AskReload(id=response.id), response, now, what)


def _outcome(response: OperatorResponse) -> str:
    """Say in words what an answer holds beyond what was asked for."""
    data: Any = response.data
    if held := data and data.get("jobs"):
        return f"it goes on with {', '.join(held)}"
    return "; ".join(data["was"]) if data and data.get("was") else ""


def _on_status(world: World, _client: str, ask: AskStatus, now: Now) -> OperatorResponse:
    counts = world.book.counts()
    pending = world.book.in_state(JobState.PENDING)
    data: dict[str, JsonValue] = {
        "jobs": dict(counts),
        "hosts": host_counts(world),
        "coordinator": {
            "host": world.settings.machine,
            "version": world.settings.version,
            "started_at": world.settings.started_at,
            "manifest": world.settings.manifest,
            "session": world.session,
        },
        "broker": {"address": world.settings.broker},
        "active": counts["claimed"] + counts["running"],
        "runnable": sum(could_run(world, job, now) for job in pending),
        "dropped": dict(world.dropped),
        "refused": dict(world.refused),
        "signed": world.settings.operator_key is not None,
    }
    return _data(ask.id, data)


def _on_list(world: World, _client: str, ask: AskList, _now: Now) -> OperatorResponse:
    jobs = world.book.in_claim_order(*(JobState(state) for state in ask.states))
    page = jobs[ask.offset : ask.offset + ask.limit]
    rows: list[JsonValue] = []
    size_chars = 0
    for job in page:
        row = job.row()
        size_chars += len(row.model_dump_json())
        if rows and size_chars > _PAGE_CHARS:
            break
        rows.append(row.model_dump(mode="json"))
    end = ask.offset + len(rows)
    following = end if end < len(jobs) else None
    return _data(ask.id, {"jobs": rows, "total": len(jobs), "next": following})


_PAGE_CHARS: Final = 150_000


def _on_show(world: World, client: str, ask: AskShow, _now: Now) -> OperatorResponse | None:
    job = _find(world, ask)
    if isinstance(job, OperatorResponse):
        return job
    host = world.hosts.get(job.host or "")
    progress = host.progress.get(job.job_id) if host else None
    data: dict[str, JsonValue] = {
        **job.row().model_dump(mode="json"),
        "spec": spec_to_dict(job.spec),
        "progress": None if progress is None else progress.model_dump(mode="json"),
    }
    world.do(AnswerWithEvents(client, ask.id, job.job_id, data))
    return None


def _on_why(world: World, _client: str, ask: AskWhy, now: Now) -> OperatorResponse:
    job = _find(world, ask)
    if isinstance(job, OperatorResponse):
        return job
    waits = job.state is JobState.PENDING and job.in_plan
    found = explain(world, job, now) if waits else []
    hosts: list[JsonValue] = [
        {
            "host": view.host,
            "eligible": not against,
            "reasons": [reason.text for reason in against],
        }
        for view, against in found
    ]
    fits = sum(1 for _, against in found if not against)
    data: dict[str, JsonValue] = {
        "job_id": job.job_id,
        "name": job.spec.name,
        "state": job.state.value,
        "summary": _summary(world, job, len(found), fits, now),
        "hosts": hosts,
    }
    return _data(ask.id, data)


def _summary(world: World, job: Job, known: int, fits: int, now: Now) -> str:
    match job.state:
        case JobState.PENDING if not job.in_plan:
            return "it is no longer in the manifest; put it back, or cancel it"
        case JobState.PENDING if known == 0:
            return "no host is known yet; start an agent with `fleet agent`"
        case JobState.PENDING if fits == 0:
            return f"none of {known} known hosts can take it now"
        case JobState.PENDING:
            return "it is about to be assigned"
        case JobState.CLAIMED | JobState.RUNNING:
            host = world.hosts.get(job.host or "")
            how = "" if host is None or host.online else f", which is {host.presence(now)}"
            return f"it is {job.state.value} on {job.host}{how}"
        case JobState.FAILED:
            remedy = "takes the result, which came later" if job.artifact_id else "tries again"
            return f"it failed: {job.error}; `fleet requeue` {remedy}"
        case JobState.CANCELLED:
            return "it was cancelled; `fleet requeue` brings it back"
        case _:
            return f"it is {job.state.value}"


def _on_logs(world: World, client: str, ask: AskLogs, _now: Now) -> OperatorResponse | None:
    job = _find(world, ask)
    if isinstance(job, OperatorResponse):
        return job
    world.do(AnswerWithLog(client, ask.id, job.job_id, job.attempt, ask.lines))
    return None


def _on_workers(world: World, _client: str, ask: AskWorkers, now: Now) -> OperatorResponse:
    hosts = sorted(world.hosts.values(), key=lambda host: host.name)
    page = hosts[ask.offset : ask.offset + ask.limit]
    rows: list[JsonValue] = []
    size_chars = 0
    for host in page:
        row = _worker(world, host, now, brief=ask.brief)
        size_chars += len(str(row))
        if rows and size_chars > _PAGE_CHARS:
            break
        rows.append(row)
    end = ask.offset + len(rows)
    following = end if end < len(hosts) else None
    return _data(ask.id, {"workers": rows, "total": len(hosts), "next": following})


def _worker(world: World, host: Host, now: Now, *, brief: bool) -> dict[str, JsonValue]:
    heartbeat = host.heartbeat
    row: dict[str, JsonValue] = {
        "host": host.name,
        "status": "online" if host.online else "offline",
        "presence": host.presence(now),
        "why": host.offline_why,
        "barred": list(world.record(host.name).barred()),
        "policy": policy_to_dict(world.policy(host.name)),
        "jobs": [_held(world, held) for held in heartbeat.jobs] if heartbeat else [],
        "last_seen": host.last_seen_at,
    }
    if not brief:
        row |= {"capability": _dump(host.capability), "heartbeat": _dump(heartbeat)}
    return row


def _held(world: World, held: Any) -> dict[str, JsonValue]:
    job = world.book.get(held.job_id)
    return {
        "job_id": held.job_id,
        "name": job.spec.name if job else None,
        "attempt": held.attempt,
        "phase": held.phase,
        "progress": held.progress,
    }


def _on_cancel(world: World, client: str, ask: AskCancel, now: Now) -> OperatorResponse:
    job = _find(world, ask)
    if isinstance(job, OperatorResponse):
        return job
    if job.state in FINAL:
        message = f"job {job.spec.name} is {job.state.value} already"
        return _refusal(ask.id, "refused", message)
    after = world.move(job, Event.CANCELLED, now, user_of(client), "")
    _stop_holder(world, job, "cancelled", now)
    return _moved(ask.id, after)


def _on_requeue(world: World, client: str, ask: AskRequeue, now: Now) -> OperatorResponse:
    job = _find(world, ask)
    if isinstance(job, OperatorResponse):
        return job
    if job.state is JobState.PENDING:
        wait_s = retry_wait_s(world, job, now)
        more = f"; its retry begins in {wait_s:.0f} s" if wait_s else ""
        return _refusal(ask.id, "refused", f"job {job.spec.name} is pending already{more}")
    if not job.in_plan:
        message = f"job {job.spec.name} is not in the manifest any more; put it back, and reload"
        return _refusal(ask.id, "refused", message)
    who, kept = user_of(client), job.artifact_id
    after = world.move(
        job, Event.REQUEUED, now, who, "", host=None, losses=0, failures=0, checkpoint=None
    )
    _stop_holder(world, job, "requeued", now)
    if job.state is JobState.FAILED and kept in world.stored:
        after = take_kept(world, job, after, now, who)
    return _moved(ask.id, after)


def _stop_holder(world: World, job: Job, why: str, now: Now) -> None:
    if job.is_held and job.host is not None:
        tell_to_stop(world, job.host, job.job_id, job.attempt, why, now)


def _on_drain(world: World, client: str, ask: AskDrain, now: Now) -> OperatorResponse:
    record = world.record(ask.host)
    if ask.host not in world.hosts and ask.host not in world.records:
        return _no_host(ask.id, ask.host)
    if record.drained:
        return _refusal(ask.id, "refused", f"host {ask.host} is drained already")
    world.remember(replace(record, drained=True, at=now.text(), who=user_of(client)))
    held: list[JsonValue] = [job.spec.name for job in world.held_at(ask.host)]
    return _data(ask.id, {"host": ask.host, "drained": True, "jobs": held})


def _on_resume(world: World, client: str, ask: AskResume, now: Now) -> OperatorResponse:
    record = world.record(ask.host)
    if ask.host not in world.hosts and ask.host not in world.records:
        return _no_host(ask.id, ask.host)
    if not record.barred():
        return _refusal(ask.id, "refused", f"host {ask.host} is neither drained nor in quarantine")
    world.evidence.pop(ask.host, None)
    world.remember(HostRecord(ask.host, at=now.text(), who=user_of(client)))
    return _data(ask.id, {"host": ask.host, "drained": False, "was": list(record.barred())})


def _no_host(request_id: str, name: str) -> OperatorResponse:
    message = f"no host is called {name!r}; `fleet workers` shows them"
    return _refusal(request_id, "not_found", message)


def _on_reload(world: World, client: str, ask: AskReload, _now: Now) -> OperatorResponse | None:
    if world.settings.manifest is None:
        message = "the coordinator was started without --manifest; there is nothing to reload"
        return _refusal(ask.id, "refused", message)
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


def _on_trainers(world: World, _client: str, ask: AskTrainers, _now: Now) -> OperatorResponse:
    return _data(ask.id, {"trainers": {**known_trainers(world)}})


def _on_fetch(world: World, client: str, ask: AskFetch, now: Now) -> OperatorResponse:
    job = _find(world, ask)
    if isinstance(job, OperatorResponse):
        return job
    return downloads.on_fetch(world, client, ask, job, now)


def known_trainers(world: World) -> dict[str, dict[str, JsonValue]]:
    """Return the schema of each model's hyperparameters.

    Those that the hosts announce; where hosts differ, any of theirs will do, and matchmaking finds
    out whose. Then what is known without any host. A model that only the ledger knows may have
    any: its hosts have yet to come.
    """
    announced: dict[str, list[dict[str, JsonValue]]] = {}
    for host in sorted(world.hosts.values(), key=lambda host: host.name):
        for model, trainer in (host.capability.trainers if host.capability else {}).items():
            schemas = announced.setdefault(model, [])
            if trainer.hyper_schema not in schemas:
                schemas.append(dict(trainer.hyper_schema))
    known: dict[str, dict[str, JsonValue]] = {job.spec.model: {} for job in world.book.all()}
    known |= {model: dict(schema) for model, schema in world.settings.trainers.items()}
    return known | {
        model: schemas[0] if len(schemas) == 1 else {"anyOf": [*schemas]}
        for model, schemas in announced.items()
    }


def host_counts(world: World) -> dict[str, JsonValue]:
    """Return how many hosts are online and offline."""
    online = sum(host.online for host in world.hosts.values())
    return {"online": online, "offline": len(world.hosts) - online}


def _find(world: World, ask: Any) -> Job | OperatorResponse:
    jobs = world.book.find(ask.job)
    if len(jobs) == 1:
        return jobs[0]
    if not jobs:
        message = f"no job has the name or id {ask.job!r}; `fleet list` shows them"
        return _refusal(ask.id, "not_found", message)
    names = ", ".join(sorted(f"{job.spec.name} ({job.job_id[:12]})" for job in jobs)[:8])
    more = f" and {len(jobs) - 8} more" if len(jobs) > 8 else ""
    return _refusal(ask.id, "refused", f"{ask.job!r} may mean {names}{more}; write more of it")


def _dump(message: Wire | None) -> JsonValue:
    return None if message is None else message.model_dump(mode="json")


def _data(request_id: str, data: JsonValue) -> OperatorResponse:
    return OperatorResponse(id=request_id, ok=True, data=data)


def _moved(request_id: str, job: Job) -> OperatorResponse:
    return _data(
        request_id, {"job_id": job.job_id, "name": job.spec.name, "state": job.state.value}
    )


def _refusal(request_id: str, code: Any, message: str) -> OperatorResponse:
    return OperatorResponse(id=request_id, ok=False, code=code, message=message)


_HANDLERS: Final[dict[type[Wire], Callable[[World, str, Any, Now], OperatorResponse | None]]] = {
    AskStatus: _on_status,
    AskList: _on_list,
    AskShow: _on_show,
    AskWhy: _on_why,
    AskLogs: _on_logs,
    AskWorkers: _on_workers,
    AskCancel: _on_cancel,
    AskRequeue: _on_requeue,
    AskDrain: _on_drain,
    AskResume: _on_resume,
    AskReload: _on_reload,
    AskEvents: _on_events,
    AskTrainers: _on_trainers,
    AskFetch: _on_fetch,
}
