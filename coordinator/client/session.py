"""A connection to the fleet, on a thread of its own: requests are repeated until answered.

Any number of threads may ask. A request ends with its answer or at its deadline.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from broker.client.access import PEOPLE, open_access
from broker.client.link import Link
from broker.client.mailbox import Mailbox, feed
from broker.clock import Clock, Now
from broker.errors import BadMessage, BadTopic, FleetError
from broker.protocol import messages as m
from broker.protocol.link_events import Connected, Disconnected, Incoming, LinkEvent, Outgoing
from broker.protocol.signing import OperatorKey, is_answer, signed_by
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topic, Topics
from broker.system.machine import new_id
from broker.system.settings import BrokerSettings
from coordinator.client.contact import USUAL_S, Contact, NotDone, Unreachable
from coordinator.jobs import host_paging
from coordinator.jobs.causes import in_words, refusal

REPEAT_S: Final = 1.0
OFFLINE_S: Final = 1.0  # how long an offline coordinator is waited for: it may be restarting
SETTLED_S: Final = 0.5  # a coordinator that had heard the last repetition would have shown by then
TURN_S: Final = 0.2
MAX_ASKED: Final = 1000
Listed = m.AskList | m.AskWorkers | m.AskPlan | m.AskAttempts  # what is answered page by page


@dataclass(slots=True)
class _Asked:
    """A request under way. `sent_s` is when it was sent last; none: there was no connection."""

    request: m.OperatorRequest
    answer: Future[Any]
    key: OperatorKey | None
    asked_s: float
    end_s: float
    repeat_s: float = 0.0
    sent_s: float | None = None
    forged: str = ""


class Session:
    """The connection. Subclasses take what comes on the watched topics."""

    def __init__(
        self, settings: BrokerSettings, kind: str, watch: Sequence[tuple[str, int]],
        clock: Clock, timeout_s: float,
    ) -> None:  # fmt: skip
        """Prepare; `start` connects. `kind` begins the client's name; `watch`: topics and QoS.

        Raises `ConfigError` for a connection that is not safe, or an identity that does not hold.
        """
        access = open_access(settings, PEOPLE, clock().wall_s)
        name = f"{kind}-{new_id()[:12]}"
        self.topics = Topics(settings.topic_root)
        self.addresses = access.addresses
        self.identity = access.identity
        self.user = access.user
        self.name = f"{access.user}/{name}"
        self.timeout_s = timeout_s
        self._settings = settings
        self._clock = clock
        self._contact = Contact()
        self._since_s = 0.0  # of this connection
        self._lock = threading.RLock()
        self._asked: dict[str, _Asked] = {}
        self._stopping = threading.Event()
        self._mailbox: Mailbox[LinkEvent | None] = Mailbox()
        own = self.topics.for_operator(self.name)
        more = {self.topics.coordinator_status(): 1, **dict(watch)}
        self._link = Link(
            access.link(self.topics.client_id(name), [*own, *more.items()]),
            feed(self._mailbox, self.topics),
        )
        self._thread = threading.Thread(target=self._run, name=f"fleet-{kind}", daemon=True)

    def start(self) -> None:
        """Connect, and go on trying."""
        self._contact.on_start(self._clock().mono_s)
        self._link.start()
        self._thread.start()

    def stop(self) -> None:
        """Disconnect; whoever waits for an answer is told."""
        self._stopping.set()
        self._link.stop()
        self._mailbox.put(None)
        self._thread.join(REPEAT_S)

    @property
    def connected(self) -> bool:
        """Whether there is a connection to the broker."""
        return self._contact.connected

    def ask(self, request: m.OperatorRequest) -> Any:
        """Return the data of the answer, waited for. Raises what the future of `send` bears."""
        return self.send(request).result()

    def pages(self, wanted: Listed) -> Iterator[dict[str, Any]]:
        """Yield the pages of a list, each asked for when the one before has been looked at."""
        cursor = "before" if isinstance(wanted, m.AskAttempts) else "offset"
        place: dict[str, Any] = {}
        while True:
            page = self.ask(wanted.model_copy(update={"id": new_id(), **place}))
            yield page
            if page["next"] is None:
                return
            place = {cursor: page["next"]}

    def list_jobs(
        self, states: Sequence[Any] = (), models: Sequence[str] = ()
    ) -> list[dict[str, Any]]:
        """Return the rows of all jobs, or those in these states and of these models."""
        ask = m.AskList(id=new_id(), states=tuple(states), models=tuple(models))
        return [row for page in self.pages(ask) for row in page["jobs"]]

    def list_workers(self, *, brief: bool = False) -> list[dict[str, Any]]:
        """Return all hosts."""
        pages = self.host_pages(brief=brief)
        return [row for page in pages for row in host_paging.whole(page)]

    def host_pages(self, *, absent: bool = False, brief: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the pages of hosts."""
        return self.pages(m.AskWorkers(id=new_id(), absent=absent, brief=brief))

    def send(self, request: m.OperatorRequest) -> Future[Any]:
        """Ask the coordinator; the future bears its data, `NotDone` or `Unreachable`.

        Commands are signed where there is an operator key, anew at each repetition: a signature
        holds for a minute. They expire when nobody waits any more. Of the answers to them the one
        counts that the key has signed. Raises `ConfigError` for an unusable key.
        """
        # Whoever only looks needs no key, and may have no right to read it.
        key = self._settings.operator_key() if isinstance(request, m.Command) else None
        now = self._clock()
        if isinstance(request, m.Command) and request.expires_at is None:
            request = request.model_copy(update={"expires_at": now.wall_s + self.timeout_s})
        asked = _Asked(request, Future(), key, now.mono_s, now.mono_s + self.timeout_s)
        with self._lock:
            if len(self._asked) >= MAX_ASKED:
                asked.answer.set_exception(NotDone("too much is asked at once; try again"))
                return asked.answer
            self._publish(asked, now)  # first: what cannot be encoded is an error of who asks
            self._asked[request.id] = asked
            self._contact.on_asked(now.mono_s)
        return asked.answer

    def on_link(self, event: Connected | Disconnected, now: Now) -> None:
        """The connection has changed."""

    def on_message(self, topic: Topic, event: Incoming, now: Now) -> None:
        """A message has come that is no answer."""

    def on_turn(self, events: Sequence[LinkEvent | None], now: Now) -> None:
        """These events have been handed on. The lock is not held: this may take time."""

    def silence(self) -> Unreachable:
        """Return why there is no answer."""
        lost = self._contact.lost
        if lost is None:
            return Unreachable("answer", "no coordinator answered")
        return Unreachable("broker", f"not connected: {lost}")

    def _publish(self, asked: _Asked, now: Now) -> None:
        topic = self.topics.operator_request(self.name)
        signed = signed_by(asked.key, topic, asked.request, now.wall_s)
        if self._link.publish(Outgoing(topic, m.encode(signed))):
            asked.sent_s = now.mono_s
        # Not once more if nobody could answer that before the end.
        at_s = now.mono_s + REPEAT_S
        asked.repeat_s = at_s if asked.end_s - at_s >= SETTLED_S else asked.end_s

    def _run(self) -> None:
        while not self._stopping.is_set():
            events = list(self._mailbox.take(TURN_S))
            now = self._clock()
            with self._lock:
                found = [self._on_event(event, now) for event in events if event is not None]
                late = self._repeat(now)
            for answered in found:
                if answered is not None:
                    _settle(*answered)
            for asked in late:
                _fail(asked, self._error(asked, self.silence(), now.mono_s))
            self.on_turn(events, now)
        with self._lock:
            left = list(self._asked.values())
            self._asked.clear()
        closed = Unreachable("broker", "the connection was closed")
        for asked in left:
            _fail(asked, self._error(asked, closed, self._clock().mono_s))

    def _on_event(self, event: LinkEvent, now: Now) -> tuple[_Asked, m.OperatorResponse] | None:
        if isinstance(event, Incoming):
            return self._on_incoming(event, now)
        if isinstance(event, Connected):
            self._since_s = now.mono_s
            self._contact.on_connected()
            if self._asked:  # what was asked on the last connection is repeated on this one
                self._contact.on_asked(now.mono_s)
        else:
            self._contact.on_disconnected(event, now.mono_s)
        self.on_link(event, now)
        return None

    def _on_incoming(self, event: Incoming, now: Now) -> tuple[_Asked, m.OperatorResponse] | None:
        """Return a request and its answer, where it is one. Garbage is dropped."""
        with contextlib.suppress(BadTopic, BadMessage):
            topic = self.topics.parse(event.topic)
            if topic.kind is Kind.OPERATOR_RESPONSE:
                return self._on_response(event, now)
            if topic.kind is Kind.COORDINATOR_STATUS:
                # A retained status is older than the connection.
                self._on_status(event.payload, self._since_s if event.retained else now.mono_s)
            self.on_message(topic, event, now)
        return None

    def _on_response(self, event: Incoming, now: Now) -> tuple[_Asked, m.OperatorResponse] | None:
        response = m.decode(m.OPERATOR_RESPONSE, event.payload)
        asked = self._asked.get(response.id)
        if asked is None:
            return None
        if asked.key is not None and not is_answer(asked.key, event.topic, event.payload):
            # The true one comes at once, if it does; to ask again would be refused again.
            asked.forged = in_words(response.why) or "done"
            asked.end_s = min(asked.end_s, now.mono_s + REPEAT_S)
            asked.repeat_s = asked.end_s
            return None
        del self._asked[response.id]
        self._contact.on_answered(now.mono_s)
        return asked, response

    def _on_status(self, payload: bytes, at_s: float) -> None:
        status = None  # also where it makes no sense
        try:
            status = m.decode(m.STATUS, payload) if payload else None
        finally:
            self._contact.on_coordinator(status, at_s)

    def _repeat(self, now: Now) -> list[_Asked]:
        """Repeat what is due, and return what nobody has answered in time."""
        late = []
        for asked in list(self._asked.values()):
            if now.mono_s >= min(asked.end_s, self._offline_end_s(asked)):
                late.append(self._asked.pop(asked.request.id))
            elif now.mono_s >= asked.repeat_s:
                self._publish(asked, now)
        return late

    def _offline_end_s(self, asked: _Asked) -> float:
        """Return until when an offline coordinator is waited for, unless more time was asked for.

        Not less than a repetition: most requests are answered at once.
        """
        offline_s = self._contact.offline_s
        if offline_s is None or asked.end_s - asked.asked_s > USUAL_S:
            return math.inf
        return max(asked.asked_s + REPEAT_S, offline_s) + OFFLINE_S

    def _error(self, asked: _Asked, silence: Unreachable, now_s: float) -> FleetError:
        """Return why a request was not answered, and what becomes of a command.

        A request is not retained, and an offline coordinator has no session that would keep it.
        """
        if asked.forged:
            return NotDone(
                "an answer came that the operator key has not signed, so it may be forged: "
                f"{asked.forged!r}",
                remedy="is the operator key the coordinator's? what was done is in `fleet events`",
            )
        if asked.sent_s is None or not isinstance(asked.request, m.Command):
            return silence
        offline_s = self._contact.offline_s
        was_offline = offline_s is not None and offline_s <= asked.asked_s
        # The coordinator allows a minute beyond a command's expiry (`authority.EXPIRY_SLACK_S`).
        result = "what was asked may still be done within a minute"
        if was_offline and now_s - asked.sent_s >= SETTLED_S:
            result = "nothing was done"
        lines = filter(None, (silence.remedy, result))
        return Unreachable(silence.what, silence.wrong, "\n".join(lines))


def _settle(asked: _Asked, response: m.OperatorResponse) -> None:
    if not response.ok:
        why = response.why
        _fail(asked, NotDone(refusal(why), response.data, response.code, why))
    elif asked.answer.set_running_or_notify_cancel():
        asked.answer.set_result(response.data)


def _fail(asked: _Asked, error: FleetError) -> None:
    # Whoever asked may have gone meanwhile, and cancelled: that must not end this thread.
    if asked.answer.set_running_or_notify_cancel():
        asked.answer.set_exception(error)
