"""What the coordinator knows of certificates: who was given one, and whose was revoked.

An operator's client tells it of `fleet enroll` and `fleet revoke`, or it reads the CA's journal
where it has the CA itself. Each entry is recorded once, as what operators do is. A host whose
certificate was revoked is given nothing, what it held goes back into the queue, and nothing that it
says counts: not every broker ends its connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from broker.clock import Now, rfc3339
from broker.protocol.acl import Principal
from broker.protocol.messages import AskIdentity, OperatorResponse
from broker.protocol.topic_table import Role
from broker.protocol.topics import is_host, user_of
from coordinator.core import presence
from coordinator.core.authorization import Data, refused
from coordinator.core.effects import JournalRead
from coordinator.core.state import MAX_ANSWERS, World
from coordinator.core.stopping import tell_to_stop
from coordinator.jobs.causes import NONE, Cause, cause
from coordinator.jobs.records import JOURNAL, Action, Revocation
from coordinator.jobs.states import Event

LATE_S: Final = 60.0  # an entry that is older says when it was made


def on_told(world: World, client: str, ask: AskIdentity, now: Now) -> Data:
    """Take an entry that an operator tells of."""
    user = user_of(client)
    if Principal.parse(user).role is not Role.OPERATOR:
        raise refused("no_certificates", user=user)
    held: list[JsonValue] = [*_take(world, user, ask, now)]
    return {"name": ask.name, "jobs": held}


def on_journal(world: World, event: JournalRead, now: Now) -> None:
    """Take over what the CA's journal has, and the ledger has not."""
    oldest_s = 0.0
    if len(world.answers) >= MAX_ANSWERS:
        # What is older may have been taken over, and forgotten since.
        oldest_s = next(iter(world.answers.values())).wall_s
    for who, ask in event.entries:
        if (JOURNAL, ask.id) in world.answers or ask.made_at < oldest_s:
            continue
        jobs = _take(world, who, ask, now)
        response = OperatorResponse(id=ask.id, ok=True, data={"name": ask.name, "jobs": [*jobs]})
        world.remember_answer(JOURNAL, response, now)
        world.remember(
            Action(
                now.text(), who, ask.action, "done", what_came(who, ask, jobs, now),
                (JOURNAL, ask.id), None, host_of(ask), response,
            )
        )  # fmt: skip


def host_of(ask: AskIdentity) -> str | None:
    """Return the host that an entry is about; none when it is about a person."""
    return ask.name if is_host(ask.name) else None


def what_came(who: str, ask: AskIdentity, jobs: Sequence[str], now: Now) -> Cause:
    """Return an entry for the record, with its own time if that is long ago."""
    said = cause(
        "certificate",
        name=None if host_of(ask) or ask.action == "init" else ask.name,
        by=ask.who if ask.who and ask.who != who else None,
        made_at=rfc3339(ask.made_at) if now.wall_s - ask.made_at > LATE_S else None,
        text=ask.what or None,
        jobs=[*jobs] or None,
    )
    return said if len(said) > 1 else NONE


def _take(world: World, who: str, ask: AskIdentity, now: Now) -> list[str]:
    """Bar a host, or let it in again; return the names of the jobs that it had to give back."""
    host = host_of(ask)
    if host is None or ask.action == "init":
        return []
    world.look_at(host)
    if ask.action == "enroll":
        was_revoked = world.revoked.pop(host, None) is not None
        known = world.hosts.get(host)
        if was_revoked and known is not None and known.online and not known.has_joined():
            # It was there before we heard of it, and was refused.
            presence.ask_birth(world, known, now)
        return []
    world.revoked[host] = Revocation(now.text(), who)
    names = []
    for job in world.book.held_by(host):
        world.move(job, Event.RELEASED, now, who, cause("revoked"), host=None)
        tell_to_stop(world, host, job.job_id, job.attempt, "revoked", now)
        names.append(job.spec.name)
    return names
