"""What operators decide about hosts and about the fleet: drain, snooze, resume, pause.

Each decision stands in the ledger, so that it holds after a restart. A snooze ends by the wall
clock, and never later than it was long: a clock that is set back does not lengthen it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from pydantic import JsonValue

from broker.clock import Now, rfc3339, until
from broker.protocol import messages as m
from broker.protocol.link_events import Outgoing
from broker.protocol.reasons import Reason, reason
from broker.protocol.topics import user_of
from coordinator.core import give_back
from coordinator.core.authorization import Data, fitting, no_host, refused
from coordinator.core.state import World
from coordinator.jobs import host_condition
from coordinator.jobs.causes import NONE, Cause, cause
from coordinator.jobs.host_condition import Condition
from coordinator.jobs.hosts import Host
from coordinator.jobs.jobs import Job
from coordinator.jobs.records import Action, HostForgotten, HostRecord

# `fleet forget`: a host that is gone for good leaves the coordinator's view, and the broker's.
#
# Its jobs keep their histories. Should its agent come back after all, it is a new host.


def on_forget(world: World, _client: str, ask: m.AskForget, _now: Now) -> Data:
    """Forget a host; refused while it is online or holds a job."""
    name = ask.host
    _record(world, name)
    host = world.hosts.get(name)
    if host is not None and host.online:
        raise refused("host_online", host=name)
    if held := [job.spec.name for job in world.book.held_by(name)]:
        raise refused("host_holds", host=name, jobs=[*held[:8]], more=max(0, len(held) - 8))
    _forget(world, name)
    return {"host": name, "forgotten": True}


def _forget(world: World, name: str) -> None:
    world.hosts.pop(name, None)
    world.evidence.pop(name, None)
    for by_host in world.holdbacks.values():
        by_host.pop(name, None)
    for stop in [stop for stop in world.stops if stop[0] == name]:
        del world.stops[stop]
    world.remember(HostForgotten(name))
    # What stays on the broker would bring it back at the coordinator's next start.
    for topic in (world.topics.status(name), world.topics.capability(name)):
        world.do(Outgoing(topic, b"", retain=True))


SHOWN: Final = 50  # hosts in the answer to `status`
SHOWN_BYTES: Final = 100_000  # of it
LOOK_S: Final = 60.0  # a clock that was set, or a machine that slept, is noticed after so long


def on_drain(world: World, client: str, ask: m.AskDrain, now: Now) -> Data:
    """Keep new jobs off a host, and perhaps take back those that it has."""
    record = _record(world, ask.host)
    if record.drained and (record.drained_now or not ask.now):
        raise refused("drained_already", host=ask.host)
    who = user_of(client)
    world.remember(replace(record, drained=True, drained_now=ask.now, at=now.text(), who=who))
    fields: Data = {"host": ask.host, "drained": True}
    return fields | _what_becomes(world, ask.host, now)


def on_snooze(world: World, client: str, ask: m.AskSnooze, now: Now) -> Data:
    """Keep new jobs off a host for a while, and perhaps take back what it has; or end that."""
    record = _record(world, ask.host)
    if not ask.for_s:
        return _end_snooze(world, record)
    ends_at = rfc3339(now.wall_s + ask.for_s)
    record = replace(
        record,
        snoozed_until=ends_at,
        snoozed_by=user_of(client),
        snooze_s=ask.for_s,
        snoozed_now=ask.now,
    )
    world.remember(record)
    _set_alarm(world, record, now)
    fields: Data = {"host": ask.host, "until": ends_at}
    return fields | _what_becomes(world, ask.host, now)


def _end_snooze(world: World, record: HostRecord) -> Data:
    """End a snooze and nothing else; that there is none is no error."""
    name = record.host
    was = _told(one for one in record.restraints() if one.code == "snoozed")
    if was:
        _cancel_alarm(world, name)
        world.remember(record.without_snooze())
    host = world.hosts.get(name)
    against = restraints(world, host) if host is not None else world.record(name).restraints()
    return {"host": name, "until": None, "was": was, "refuses": _told(against)}


def on_resume(world: World, client: str, ask: m.AskResume, now: Now) -> Data:
    """Give a host jobs again. What its owner or the manifest say holds all the same."""
    was = _record(world, ask.host).restraints()
    host = world.hosts.get(ask.host)
    refuses = [] if host is None else _told(own_refusal(host))
    if not was and (revocation := world.revoked.get(ask.host)):
        why = revocation.restraint(ask.host).to_dict()
        raise refused("host_revoked", host=ask.host, reason=why)
    if not was:
        raise refused("not_restrained", host=ask.host, refuses=refuses)
    world.evidence.pop(ask.host, None)
    _cancel_alarm(world, ask.host)
    world.remember(HostRecord(ask.host, at=now.text(), who=user_of(client)))
    return {"host": ask.host, "drained": False, "was": _told(was), "refuses": refuses}


def on_pause(world: World, client: str, ask: m.AskPause, now: Now) -> Data:
    """Give out no new jobs, or give them out again; that it is so already is no error."""
    was_so = world.fleet.paused is not ask.off
    if not was_so:
        changed = replace(world.fleet, paused=not ask.off, at=now.text(), who=user_of(client))
        world.remember(changed)
        world.timers.set(("summary",), now.mono_s)
    return {"paused": not ask.off, "was_so": was_so}


def on_loaded(world: World, now: Now) -> None:
    """After a restart: each snooze goes on until it ends."""
    for record in world.records.values():
        if record.snoozed_until:
            _set_alarm(world, record, now)


def on_alarm(world: World, host: str, now: Now) -> None:
    """A snooze may be over."""
    record = world.record(host)
    if not record.snoozed_until:
        return
    if until(record.snoozed_until, now) > 0 and ("snooze-over", host) in world.timers:
        _look_again(world, record, now)
        return
    _cancel_alarm(world, host)
    world.remember(record.without_snooze())
    what = cause("snooze_over", by=record.snoozed_by)
    world.remember(Action(now.text(), "coordinator", "resume", "done", what, host=host))


def condition(world: World, host: Host, now: Now) -> Condition:
    """Return how a host is."""
    return host_condition.condition(world.presence(host, now), restraints(world, host))


def restraints(world: World, host: Host) -> tuple[Reason, ...]:
    """Return every reason why a host is given no jobs now, whoever's doing it is."""
    own = own_refusal(host) if host.online else ()
    no_data = (reason("no-data"),) if lacks_data(host) else ()
    decided = (one for one in world.restraints(host.name) if one.code != "paused")
    return (*decided, *own, *no_data)


def own_refusal(host: Host) -> tuple[Reason, ...]:
    """Return why a host takes no jobs by its own word."""
    holds = host.heartbeat.refuses if host.heartbeat else ()
    return (reason("refuses", holds=[one.told() for one in holds]),) if holds else ()


def told_restraints(world: World, host: Host) -> list[JsonValue]:
    """Return them as JSON values."""
    return _told(restraints(world, host))


def _told(reasons: Iterable[Reason]) -> list[JsonValue]:
    return [one.to_dict() for one in reasons]


def restrained(world: World) -> list[JsonValue]:
    """Return the first hosts that are given no jobs, each with every reason."""
    names = sorted(name for name, host in world.hosts.items() if _may_be(world, host))
    found = ((name, told_restraints(world, world.hosts[name])) for name in names)
    rows: Iterator[Data] = ({"host": name, "reasons": why} for name, why in found if why)
    return fitting(islice(rows, SHOWN), SHOWN_BYTES)


def _may_be(world: World, host: Host) -> bool:
    """Whether there may be a reason: most hosts have none, and there may be thousands."""
    by_itself = host.heartbeat is not None and bool(host.heartbeat.refuses)
    return by_itself or lacks_data(host) or host.name in world.records or host.name in world.revoked


def lacks_data(host: Host) -> bool:
    """Whether it is there without prepared data, and so can take no job."""
    known = host.capability if host.online else None
    return known is not None and known.lacks_data()


def outcome(data: Data) -> Cause:
    """Return for the record what the answer holds beyond what was asked for."""
    figures = {key: data[key] for key in ("until", "jobs", "gives_back", "was", "paused")
               if data.get(key) not in (None, "", [])}  # fmt: skip
    return cause("host", **figures) if figures.keys() - {"gives_back"} else NONE


def _record(world: World, host: str) -> HostRecord:
    """Return what is remembered of a host. Raises `RequestRefused` where nobody knows it."""
    if host not in world.hosts and host not in world.records:
        raise no_host(host, world.known_hosts())
    return world.record(host)


def _what_becomes(world: World, host: str, now: Now) -> Data:
    """Have its jobs given back, if they are to be; return which, and whether."""
    gives_back = bool(world.record(host).gives_back())
    jobs: list[Job] = give_back.let_go(world, host, now) if gives_back else world.book.held_by(host)
    return {"jobs": [job.spec.name for job in jobs], "gives_back": gives_back}


def _set_alarm(world: World, record: HostRecord, now: Now) -> None:
    left_s = min(until(record.snoozed_until, now), record.snooze_s)
    world.timers.set(("snooze-over", record.host), now.mono_s + left_s)
    _look_again(world, record, now)


def _look_again(world: World, record: HostRecord, now: Now) -> None:
    left_s = min(until(record.snoozed_until, now), LOOK_S)
    world.timers.set(("snooze", record.host), now.mono_s + left_s)


def _cancel_alarm(world: World, host: str) -> None:
    world.timers.cancel(("snooze", host))
    world.timers.cancel(("snooze-over", host))
