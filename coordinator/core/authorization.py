"""Who may change something, that nothing is done twice, and the record of what was asked.

A command is looked at when its user may change things (`broker.protocol.acl`) and, where the
coordinator has an operator key, its signature holds (`broker.protocol.signing`). Its answer then
stands in the ledger, in the transaction that carries it out; a repetition is answered from there.
So a replay is nothing but a repetition, even after a restart, for as long as its signature holds.
Whoever has the CA may revoke (broker/pki/ca.py); `commands/certificate_commands` hears of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, TypeVar

from pydantic import JsonValue
from pydantic_core import to_json

from broker.clock import Now
from broker.protocol import messages as m
from broker.protocol import signing
from broker.protocol.acl import may_change
from broker.protocol.topics import is_host, user_of
from coordinator.core.state import MAX_ANSWERS, World
from coordinator.jobs.causes import NONE, Cause, cause, in_words
from coordinator.jobs.records import JOURNAL, Action, RequestKey
from coordinator.scheduler import unknown_hosts

# Answers to operators: what is asked for, or why not.

Data = dict[str, JsonValue]

_T = TypeVar("_T")
PAGE_BYTES: Final = 150_000  # of the rows in an answer


def given(request_id: str, data: Data) -> m.OperatorResponse:
    """Return an answer with what was asked for; our own data is not validated again."""
    return m.OperatorResponse.model_construct(id=request_id, ok=True, data=data)


def fitting(rows: Iterable[Data], most_bytes: int = PAGE_BYTES) -> list[JsonValue]:
    """Return the first of these rows, as many as an answer bears; one at least."""
    found: list[JsonValue] = []
    for row in rows:
        most_bytes -= len(to_json(row))
        if found and most_bytes < 0:
            break
        found.append(row)
    return found


def paged(
    items: Sequence[_T], ask: m.AskList | m.AskPlan, row_of: Callable[[_T], Data]
) -> tuple[list[JsonValue], int | None]:
    """Return a page of rows, and where the next page begins; none after the last."""
    rows = fitting(row_of(one) for one in items[ask.offset : ask.offset + ask.limit])
    end = ask.offset + len(rows)
    return rows, end if end < len(items) else None


class RequestRefused(Exception):  # noqa: N818 - which is no fault
    """A request is not carried out; `why` has words in `jobs.refusal_words`."""

    def __init__(self, why: Cause, code: Any = "refused", data: JsonValue = None) -> None:
        """Set what the answer says; `code` is one of `OperatorResponse`."""
        super().__init__(str(why["code"]))
        self.why, self.code, self._data = {**why}, code, data

    def response(self, request_id: str) -> m.OperatorResponse:
        """Return the answer."""
        return m.OperatorResponse(
            id=request_id, ok=False, code=self.code, why=self.why, data=self._data
        )


def refused(code: str, **figures: JsonValue) -> RequestRefused:
    """Return a refusal with its figures."""
    return RequestRefused(cause(code, **figures))


def no_host(name: str, known: Collection[str]) -> RequestRefused:
    """Return the answer to whoever names a host that is not among those that are `known`."""
    why = cause("no_host", name=name, meant=unknown_hosts.closest(name, known))
    return RequestRefused(why, "not_found")


EXPIRY_SLACK_S: Final = 60.0  # how far an operator's clock may be behind ours
RECORDED_A_MINUTE: Final = 30  # of those that are turned away; more are only counted
_TARGETS: Final = ("job", "host", "name")


def is_welcome(world: World, client: str, ask: m.Command, payload: bytes, now: Now) -> bool:
    """Tell whether a command is to be looked at; whoever is turned away is told why."""
    try:
        _check(world, client, payload, now)
    except signing.Unsigned as refusal:
        turn_away(world, client, ask, refusal, now)
        return False
    return True


def is_new(world: World, client: str, ask: m.Command, now: Now) -> bool:
    """Tell whether a welcome command is to be carried out now; whoever is turned away is told."""
    if ask.expires_at is not None and now.wall_s > ask.expires_at + EXPIRY_SLACK_S:
        turn_away(world, client, ask, signing.Unsigned("expired"), now)
        return False
    if len(world.answers) >= MAX_ANSWERS and world.settings.operator_key is not None:
        oldest = next(iter(world.answers.values()))
        if now.wall_s - oldest.wall_s < 2 * world.settings.request_window_s:
            # To forget an answer while its signature holds would let the command be replayed.
            refusal = signing.Unsigned("too_many", most=MAX_ANSWERS)
            turn_away(world, client, ask, refusal, now)
            return False
    return True


def settle(
    world: World,
    client: str,
    ask: m.Command,
    response: m.OperatorResponse,
    now: Now,
    what: Cause = NONE,
) -> None:
    """Record a command that was looked at, with its answer, and send that. `what` came of it."""
    key = key_of(client, ask)
    world.remember_answer(key[0], response, now)
    world.remember(
        Action(
            at=now.text(),
            who=user_of(client),
            action=_word(ask),
            outcome="done" if response.ok else "refused",
            what=what or response.why,
            key=key,
            job_id=_job_of(world, ask, response),
            # A host that was just forgotten is known no more.
            host=_host_of(world, ask, done=response.ok),
            answer=response,
        )
    )
    answer(world, client, response, now)


def answer(world: World, client: str, response: m.OperatorResponse, now: Now) -> None:
    """Send the answer to a command; signed, so that nobody else can give it."""
    if (key := world.settings.operator_key) is not None:
        topic = world.topics.operator_response(client)
        response = signing.answered_by(key, topic, response, now.wall_s)
    reply(world, client, response)


def key_of(client: str, ask: m.Ask) -> RequestKey:
    """Return the key that identifies a repeated request; entries of the CA count once for all."""
    return (JOURNAL if isinstance(ask, m.AskIdentity) else client, ask.id)


def reply(world: World, client: str, response: m.OperatorResponse) -> None:
    """Send an answer."""
    world.publish(world.topics.operator_response(client), response)


def _check(world: World, client: str, payload: bytes, now: Now) -> None:
    user, settings = user_of(client), world.settings
    if not may_change(user):
        raise signing.Unsigned("rights", user=user)
    if settings.operator_key is not None:
        topic = world.topics.operator_request(client)
        signing.check(settings.operator_key, topic, payload, now.wall_s, settings.request_window_s)


def turn_away(
    world: World, client: str, ask: m.Command, refusal: signing.Unsigned, now: Now
) -> None:  # fmt: skip
    """Refuse a command at the door: count it, record it unless there are too many, say why."""
    kind, why = refusal.kind, cause(refusal.kind, **refusal.figures)
    world.refuse(kind, f"{_word(ask)} of {client}: {in_words(why)}")
    if is_one_more(world.turned_away_s, RECORDED_A_MINUTE, now):  # they must not fill the disk
        job_id, host = _job_of(world, ask), _host_of(world, ask)
        about = None if job_id or host else _target(ask)[:80] or None
        what, who = cause(kind, about=about, **refusal.figures), user_of(client)
        world.remember(
            Action(now.text(), who, _word(ask), "refused", what, (client, ask.id), job_id, host)
        )
    code: Any = "expired" if kind == "expired" else "refused"
    response = m.OperatorResponse(id=ask.id, ok=False, code=code, why={**why})
    answer(world, client, response, now)


def is_one_more(times_s: deque[float], a_minute: int, now: Now) -> bool:
    """Whether one more is let through now; `times_s` are those of the last ones (monotonic)."""
    while times_s and now.mono_s - times_s[0] >= 60.0:
        times_s.popleft()
    if len(times_s) >= a_minute:
        return False
    times_s.append(now.mono_s)
    return True


def _word(ask: m.Command) -> str:
    """Return what a command is called in the record."""
    if isinstance(ask, m.AskIdentity | m.AskEach):
        return ask.action
    if isinstance(ask, m.AskPush | m.AskRemove) and ask.kind == "dataset":
        return f"{ask.type}-data"
    ends = (isinstance(ask, m.AskPause) and ask.off) or (
        isinstance(ask, m.AskSnooze) and not ask.for_s
    )
    return f"{ask.type} off" if ends else ask.type


def _target(ask: m.Command) -> str:
    if isinstance(ask, m.AskRun):
        return str(ask.job.get("name") or ask.job.get("model", ""))
    return str(next(filter(None, (getattr(ask, key, "") for key in _TARGETS)), ""))


def _job_of(world: World, ask: m.Command, response: m.OperatorResponse | None = None) -> str | None:
    if isinstance(ask, m.AskRun):  # which job that is, the answer knows
        data: Any = response.data if response is not None and response.ok else None
        return str(data["job_id"]) if data else None
    found = world.book.find(getattr(ask, "job", ""))
    return found[0].job_id if len(found) == 1 else None


def _host_of(world: World, ask: m.Command, *, done: bool = False) -> str | None:
    if isinstance(ask, m.AskIdentity):
        return ask.name if is_host(ask.name) else None
    host = getattr(ask, "host", None)
    return host if done or host in world.hosts or host in world.records else None
