"""Operators' requests. `HANDLERS` is the table: a new verb begins here.

Each request is looked at, carried out by its handler, and answered. A request is a message of
broker/protocol/messages/operators.py; for the verb itself see coordinator/cli/__init__.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pydantic import JsonValue

from broker.clock import Now
from broker.protocol import messages as m
from broker.protocol.topics import user_of
from coordinator.core import (
    authorization,
    catalogue,
    downloads,
    filing,
    plan_changes,
    pushes,
)
from coordinator.core.authorization import Data, RequestRefused, given, refused
from coordinator.core.commands import (
    certificate_commands,
    host_commands,
    host_list,
    job_commands,
    prospects,
)
from coordinator.core.effects import LookUp, ReadManifest, SignaturesChecked
from coordinator.core.entries import Answer
from coordinator.core.finding import find, others
from coordinator.core.state import World
from coordinator.jobs.causes import NONE, Cause, cause
from coordinator.jobs.states import JobState

Handler = Callable[[World, str, Any, Now], Data | None]


def on_request(
    world: World, client: str, ask: m.OperatorRequest, payload: bytes, now: Now
) -> None:  # fmt: skip
    """Answer a request. A command that was answered before is answered alike, not done twice.

    `payload` is the request as it came, which a signature is for.
    """
    if isinstance(ask, m.Command) and not authorization.is_welcome(
        world, client, ask, payload, now
    ):
        return
    key = authorization.key_of(client, ask)
    if (earlier := world.answers.get(key)) is not None:
        if earlier.response is not None:
            authorization.answer(world, client, earlier.response, now)
        return  # else its answer is on the way
    if isinstance(ask, m.Command):
        if authorization.is_new(world, client, ask, now):
            carry_out(world, client, ask, now)
    elif (response := _response(world, client, ask, now)) is not None:
        authorization.reply(world, client, response)


def carry_out(world: World, client: str, ask: m.Command, now: Now) -> None:
    """Carry out a command that the caller has authorised, record it, and answer."""
    response = _response(world, client, ask, now)
    if response is None:
        world.answers[authorization.key_of(client, ask)] = Answer(None, now.wall_s)
    else:
        _settle(world, client, ask, response, now)


def on_checked(world: World, event: SignaturesChecked, now: Now) -> None:
    """The signatures of a program were checked: it is taken in, or refused."""
    client, ask = event.asked.client, event.asked.ask
    if _is_answered(world, client, ask):
        return
    if event.fault is None:
        response = _response(world, client, ask, now, pushes.take_in)
    else:
        response = refused("untrusted", fault=event.fault.told()).response(ask.id)
    if response is not None:
        _settle(world, client, ask, response, now)


def _settle(
    world: World, client: str, ask: m.Command, response: m.OperatorResponse, now: Now
) -> None:
    if isinstance(ask, m.AskPush) and pushes.is_on_the_way(response):
        # One for each blob, of which the last is recorded; to repeat it does no harm.
        world.answers.pop(authorization.key_of(client, ask), None)
        authorization.answer(world, client, response, now)
    else:
        what = (_outcome if response.ok else _refusal)(client, ask, response.data, now)
        authorization.settle(world, client, ask, response, now, what)


def _response(
    world: World, client: str, ask: m.Ask, now: Now, handler: Handler | None = None
) -> m.OperatorResponse | None:
    """Return the answer of a handler, by default that of the table; none: it follows."""
    try:
        data = (handler or HANDLERS[type(ask)])(world, client, ask, now)
    except RequestRefused as refusal:
        return refusal.response(ask.id)
    return None if data is None else given(ask.id, data)


def on_reloaded(
    world: World, client: str, response: m.OperatorResponse, now: Now, what: Cause
) -> None:  # fmt: skip
    """Answer a reload that was asked for, once; `what` came of it."""
    ask = m.AskReload(id=response.id)
    if not _is_answered(world, client, ask):
        authorization.settle(world, client, ask, response, now, what)


def _is_answered(world: World, client: str, ask: m.Command) -> bool:
    known = world.answers.get(authorization.key_of(client, ask))
    return known is not None and known.response is not None


def _refusal(_client: str, _ask: m.Command, data: Any, _now: Now) -> Cause:
    """Return the first of the errors that an answer lists; nothing where it lists none."""
    errors = data.get("errors") if isinstance(data, dict) else None
    return cause("first_of", **errors[0], more=len(errors) - 1) if errors else NONE


def _outcome(client: str, ask: m.Command, data: Any, now: Now) -> Cause:
    """Return what an answer holds beyond what was asked for."""
    match ask:
        case m.AskIdentity():
            return certificate_commands.what_came(user_of(client), ask, data["jobs"], now)
        case m.AskRun():
            return plan_changes.outcome(data)
        case m.AskEach():
            return job_commands.outcome_of_each(data)
        case m.AskPush() | m.AskRemove():
            told = {key: data[key] for key in ("name", "digest", "is_there") if key in data}
            return cause(ask.kind, **told)
        case _:
            return host_commands.outcome(data)


def _on_status(world: World, _client: str, _ask: m.AskStatus, now: Now) -> Data:
    counts, refused_by_broker = world.book.counts(), world.broker_refused
    pending = prospects.chances(world, now) if counts["pending"] else prospects.Chances()
    return {
        "jobs": dict(counts),
        "orphaned": counts["pending"] - world.book.planned()[JobState.PENDING],
        "hosts": host_counts(world),
        "coordinator": {
            "host": world.settings.machine,
            "version": world.settings.version,
            "started_at": world.settings.started_at,
            "now": now.text(),
            "plan": world.plan.name,
            "manifest": world.settings.manifest,
            "manifest_fault": {**world.manifest_fault} or None,
            "manifest_changed": {**world.manifest_changed} or None,
            "session": world.session,
            "disk_fault": filing.fault(world, now),
        },
        "broker": {
            "address": world.settings.broker,
            "refused": None if refused_by_broker is None else {**refused_by_broker},
        },
        "active": counts["claimed"] + counts["running"],
        "runnable": 0 if world.fleet.paused else pending.runnable,
        **prospects.told(world, pending),
        "starting": sum(one.online and not one.has_joined() for one in world.hosts.values()),
        "dropped": dict(world.dropped),
        "refused": dict(world.refused),
        "signed": world.settings.operator_key is not None,
        "paused": world.fleet.told(),
        "restrained": host_commands.restrained(world),
        "away": job_commands.jobs_away(world, now),
        "held_up": job_commands.jobs_held_up(world),
    }


def _on_logs(world: World, client: str, ask: m.AskLogs, _now: Now) -> None:
    job = find(world, ask.job)
    data: Data = {
        "job_id": job.job_id,
        "name": job.spec.name,
        "others": others(world, job),
        "attempt": job.attempt,
    }
    world.do(LookUp(client, ask, (job.job_id,), data))


def _on_curves(world: World, client: str, ask: m.AskCurves, _now: Now) -> None:
    known = tuple(job_id for job_id in ask.jobs if world.book.get(job_id) is not None)
    world.do(LookUp(client, ask, known))


def _on_reload(world: World, client: str, ask: m.AskReload, _now: Now) -> Data | None:
    if world.settings.manifest is None:
        raise refused("no_manifest")
    world.do(ReadManifest(plan_changes.known(world), client, ask.id))
    return None


def _on_events(world: World, client: str, ask: m.AskEvents, _now: Now) -> None:
    world.do(LookUp(client, ask, () if ask.job is None else (find(world, ask.job).job_id,)))


def _on_attempts(world: World, client: str, ask: m.AskAttempts, _now: Now) -> None:
    world.do(LookUp(client, ask))


def _on_trainers(world: World, _client: str, _ask: m.AskTrainers, _now: Now) -> Data:
    datasets = {title: one.model_dump() for title, one in catalogue.known_datasets(world).items()}
    return {"trainers": plan_changes.told_trainers(world), "datasets": {**datasets}}


def host_counts(world: World) -> dict[str, JsonValue]:
    """Return how many hosts are online and offline."""
    online = sum(host.online for host in world.hosts.values())
    return {"online": online, "offline": len(world.hosts) - online}


HANDLERS: Final[dict[type[m.Wire], Handler]] = {
    m.AskStatus: _on_status,
    m.AskList: job_commands.on_list,
    m.AskShow: job_commands.on_show,
    m.AskWhy: job_commands.on_why,
    m.AskLogs: _on_logs,
    m.AskCurves: _on_curves,
    m.AskWorkers: host_list.on_workers,
    m.AskCancel: job_commands.on_cancel,
    m.AskRequeue: job_commands.on_requeue,
    m.AskDrain: host_commands.on_drain,
    m.AskResume: host_commands.on_resume,
    m.AskSnooze: host_commands.on_snooze,
    m.AskPause: host_commands.on_pause,
    m.AskForget: host_commands.on_forget,
    m.AskRun: plan_changes.on_run,
    m.AskEach: job_commands.on_each,
    m.AskReload: _on_reload,
    m.AskEvents: _on_events,
    m.AskPlan: prospects.on_plan,
    m.AskAttempts: _on_attempts,
    m.AskTrainers: _on_trainers,
    m.AskFetch: downloads.on_fetch,
    m.AskIdentity: certificate_commands.on_told,
    m.AskPush: pushes.on_push,
    m.AskPushed: pushes.on_pushed,
    m.AskRemove: pushes.on_remove,
    m.AskLayout: pushes.on_layout,
}
