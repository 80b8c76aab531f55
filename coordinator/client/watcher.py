"""A client that keeps a `Mirror` current, on a thread of its own, and asks for others.

One connection serves any number of callers: `ask` may be called from every thread. Whoever waits
has a deadline; a request is repeated until it is answered or the deadline has passed.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from broker.client.access import PEOPLE, open_access
from broker.client.link import Link, LinkSettings
from broker.client.mailbox import Mailbox, feed
from broker.clock import Clock, Now
from broker.errors import BadMessage, BadTopic, ConfigError, FleetError
from broker.protocol.events import Connected, Disconnected, Incoming, LinkEvent, Outgoing
from broker.protocol.messages import (
    CURVES_AT_ONCE,
    OPERATOR_RESPONSE,
    AskCurves,
    AskList,
    AskStatus,
    AskWorkers,
    Command,
    OperatorRequest,
    OperatorResponse,
    decode,
    encode,
)
from broker.protocol.signing import is_answer, signed_by
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topic, Topics
from broker.system.address import text_of
from broker.system.machine import new_id, system_clock
from broker.system.settings import BrokerSettings
from coordinator.client.contact import Contact, Outage
from coordinator.client.mirror import Mirror
from coordinator.client.seen import Snapshot
from coordinator.jobs import host_paging

REPEAT_S: Final = 1.0
HOSTS_EVERY_S: Final = 10.0
JOBS_EVERY_S: Final = 120.0
AGAIN_S: Final = 5.0  # after a list that did not come
SETTLE_S: Final = 0.3  # from a change of presence to asking how the coordinator takes it
A_HOST_S: Final = 0.002  # longer: of thousands there is always one that comes or goes
MAX_ASKED: Final = 1000
TIMEOUT_S: Final = 15.0


class AskedInVain(FleetError):  # noqa: N818 - a state of the world, not a mistake
    """No coordinator answered within the deadline, or it said no; `data` is what it sent along."""

    def __init__(self, message: str, data: Any = None) -> None:
        """Say why."""
        super().__init__(message)
        self.data = data


class Unanswered(AskedInVain):
    """Nobody answered within the deadline; a command that was sent may still be carried out."""


@dataclass(slots=True)
class _Asked:
    request: OperatorRequest
    answer: Future[Any]
    deadline_s: float
    repeat_s: float = 0.0
    sent: bool = False


@dataclass(slots=True)
class _Load:
    """A list that comes page by page."""

    name: str
    every_s: float
    next_s: float = 0.0
    under_way: bool = False
    rows: list[dict[str, Any]] = field(default_factory=list)


class Watcher:
    """Follows the fleet. `on_change` is called on the watcher's thread after each batch."""

    def __init__(
        self,
        settings: BrokerSettings,
        on_change: Callable[[], None] = lambda: None,
        clock: Clock = system_clock,
    ) -> None:
        """Prepare; `start` connects.

        Raises `ConfigError` for a connection that is not safe, or an identity that does not hold.
        """
        access = open_access(settings, PEOPLE, clock().wall_s)
        self.topics = Topics(settings.topic_root)
        self.address = text_of(access.addresses)
        self.user = access.user
        self.connected = False
        self.why = "connecting"
        self.outage: Outage | None = None  # as of the last turn; any thread may read it
        self._settings = settings
        self._clock = clock
        self._on_change = on_change
        self._mirror = Mirror()
        self._contact = Contact()
        self._lock = threading.Lock()
        self._asked: dict[str, _Asked] = {}
        self._loads = {
            "jobs": _Load("jobs", JOBS_EVERY_S),
            "workers": _Load("workers", HOSTS_EVERY_S),
        }
        self._knows_hosts = False
        self._lacks_curves = True
        self._session = ""
        self._stopping = threading.Event()
        self._mailbox: Mailbox[LinkEvent] = Mailbox()
        name = f"live-{new_id()[:12]}"
        self._client = f"{access.user}/{name}"
        filters = [*self.topics.for_operator(self._client), *self.topics.for_watcher()]
        self._link = Link(
            LinkSettings(
                access.addresses,
                self.topics.client_id(name),
                filters,
                tls=access.tls,
                name=access.name,
            ),
            feed(self._mailbox, self.topics),
            will=None,
            new_id=new_id,
            rng=random.Random(),  # noqa: S311 - jitter, no secret
        )
        self._thread = threading.Thread(target=self._run, name="fleet-watcher", daemon=True)

    def start(self) -> None:
        """Connect, and go on trying."""
        now_s = self._clock().mono_s
        self._contact.on_start(now_s)
        self.outage = self._contact.outage(now_s)
        self._link.start()
        self._thread.start()

    def stop(self) -> None:
        """Disconnect; whoever waits for an answer is told."""
        self._stopping.set()
        self._link.stop()
        self._thread.join(TIMEOUT_S)

    @property
    def version(self) -> int:
        """What `snapshot().version` would be; it costs nothing to ask."""
        return self._mirror.version

    def silent_s(self) -> float:
        """Return for how many seconds the coordinator has answered nothing that it was asked."""
        with self._lock:
            return self._contact.silent_s(self._clock().mono_s)

    def snapshot(self) -> Snapshot:
        """Return what is known now; any thread may."""
        with self._lock:
            return self._mirror.snapshot()

    def refresh(self) -> None:
        """Ask for the hosts again soon, since something was done to one; any thread may."""
        hosts = self._loads["workers"]
        hosts.next_s = min(hosts.next_s, self._clock().mono_s)

    def ask(self, request: OperatorRequest, timeout_s: float = TIMEOUT_S) -> Future[Any]:
        """Ask the coordinator; the future bears its data, or `AskedInVain`. Any thread may.

        Commands are signed where there is an operator key. One that nobody has answered in time
        (`Unanswered`) may still be carried out: the coordinator allows a minute beyond its expiry
        (`authority.EXPIRY_SLACK_S`). Raises `ConfigError` for an unusable key.
        """
        answer: Future[Any] = Future()
        asked = _Asked(request, answer, self._clock().mono_s + timeout_s)
        with self._lock:
            if len(self._asked) >= MAX_ASKED:
                answer.set_exception(AskedInVain("too much is asked at once; try again"))
                return answer
            self._asked[request.id] = asked
            self._contact.on_asked(self._clock().mono_s)
        try:
            self._send(asked, self._clock())
        except ConfigError:
            with self._lock:
                self._asked.pop(request.id, None)
            raise
        return answer

    def _send(self, asked: _Asked, now: Now) -> None:
        topic = self.topics.operator_request(self._client)
        request = asked.request
        key = self._settings.operator_key() if isinstance(request, Command) else None
        asked.repeat_s = now.mono_s + REPEAT_S
        payload = encode(signed_by(key, topic, request, now.wall_s))
        asked.sent |= self._link.publish(Outgoing(topic, payload))

    def _run(self) -> None:
        while not self._stopping.is_set():
            events = self._mailbox.take(0.2)
            now = self._clock()
            with self._lock:
                before = self._mirror.version
                answers = [found for event in events if (found := self._on_event(event, now))]
                changed = self._mirror.version != before
            for asked, response in answers:
                _settle(asked, response)
            self._repeat(now)
            self._load(now)
            with self._lock:
                outage = self._contact.outage(now.mono_s)
            changed |= outage != self.outage
            self.outage = outage
            if changed or any(not isinstance(event, Incoming) for event in events):
                self._on_change()
        with self._lock:
            left = list(self._asked.values())
            self._asked.clear()
        for asked in left:
            _fail(asked, _unanswered(asked, "the connection was closed"))

    def _on_event(self, event: LinkEvent, now: Now) -> tuple[_Asked, OperatorResponse] | None:
        if isinstance(event, Connected):
            self.connected, self.why = True, ""
            self._contact.on_connected()
            if self._asked:  # what was asked on the last connection is repeated on this one
                self._contact.on_asked(now.mono_s)
            self._reload(now)
        elif isinstance(event, Disconnected):
            self.connected, self.why = False, event.why
            self._contact.on_disconnected(event.why, now.mono_s)
            self._mirror.doubt(now)
        else:
            return self._on_message(event, now)
        return None

    def _on_message(self, event: Incoming, now: Now) -> tuple[_Asked, OperatorResponse] | None:
        try:
            topic = self.topics.parse(event.topic)
            if topic.kind is Kind.OPERATOR_RESPONSE:
                return self._on_response(event, now)
        except (BadTopic, BadMessage):
            self._mirror.garbage += 1
            return None
        if self._mirror.apply(topic, event.payload, now, retained=event.retained):
            self._follow(topic, now)
        return None

    def _on_response(self, event: Incoming, now: Now) -> tuple[_Asked, OperatorResponse] | None:
        response = decode(OPERATOR_RESPONSE, event.payload)
        asked = self._asked.get(response.id)
        if asked is None:
            return None
        key = self._settings.operator_key() if isinstance(asked.request, Command) else None
        if key is not None and not is_answer(key, event.topic, event.payload):
            self._mirror.garbage += 1  # forged, or of a coordinator with another key
            return None
        del self._asked[response.id]
        self._contact.on_answered(now.mono_s)
        return asked, response

    def _follow(self, topic: Topic, now: Now) -> None:
        """Ask how the coordinator takes what has just been heard."""
        if topic.kind is Kind.STATUS:
            self._ask_hosts_soon(now)
        elif topic.kind is Kind.SUMMARY:
            summary = self._mirror.summary
            if summary and summary.paused is not bool(self._mirror.status.get("paused")):
                self._ask_hosts_soon(now)  # the answer tells who did it
        elif topic.kind is Kind.COORDINATOR_STATUS and (coordinator := self._mirror.coordinator):
            is_online = coordinator.state == "online"
            self._contact.on_coordinator(online=is_online, now_s=now.mono_s)
            if is_online and coordinator.session != self._session:
                self._session = coordinator.session
                self._reload(now)

    def _ask_hosts_soon(self, now: Now) -> None:
        hosts = self._loads["workers"]
        soon_s = SETTLE_S + A_HOST_S * len(self._mirror.hosts)
        hosts.next_s = min(hosts.next_s, now.mono_s + soon_s)

    def _reload(self, now: Now) -> None:
        self._knows_hosts, self._lacks_curves = False, True
        for load in self._loads.values():
            load.next_s = now.mono_s

    def _repeat(self, now: Now) -> None:
        with self._lock:
            late = [key for key, asked in self._asked.items() if asked.deadline_s <= now.mono_s]
            given_up = [self._asked.pop(key) for key in late]
            again = [asked for asked in self._asked.values() if asked.repeat_s <= now.mono_s]
        for asked in given_up:
            why = "no coordinator answered" if self.connected else f"not connected: {self.why}"
            _fail(asked, _unanswered(asked, why))
        for asked in again:
            try:
                self._send(asked, now)
            except ConfigError as error:  # the key was good when it was first signed with
                with self._lock:
                    self._asked.pop(asked.request.id, None)
                _fail(asked, error)

    def _load(self, now: Now) -> None:
        for load in self._loads.values():
            if self.connected and not load.under_way and load.next_s <= now.mono_s:
                load.under_way, load.rows = True, []
                load.next_s = now.mono_s + load.every_s
                if load.name == "workers":
                    load.next_s += A_HOST_S * len(self._mirror.hosts)
                self._next_page(load, 0)
                if load.name == "workers":
                    self.ask(AskStatus(id=new_id())).add_done_callback(self._on_status)

    def _next_page(self, load: _Load, offset: int) -> None:
        request: OperatorRequest
        if load.name == "jobs":
            if offset == 0:
                with self._lock:
                    self._mirror.expect_jobs()
            request = AskList(id=new_id(), offset=offset)
        else:
            # What a host is, it says itself when that changes: once is enough.
            request = AskWorkers(id=new_id(), offset=offset, limit=500, brief=self._knows_hosts)
        self.ask(request).add_done_callback(lambda done: self._on_page(load, done))

    def _on_page(self, load: _Load, done: Future[Any]) -> None:
        if done.exception() is not None:
            load.under_way = False
            load.next_s = min(load.next_s, self._clock().mono_s + AGAIN_S)
            return
        page = done.result()
        load.rows += host_paging.whole(page) if load.name == "workers" else page[load.name]
        if page["next"] is not None:
            self._next_page(load, page["next"])
            return
        load.under_way = False
        with self._lock:
            if load.name == "jobs":
                self._mirror.load_jobs(load.rows)
                begun = self._mirror.begun() if self._lacks_curves else []
            else:
                self._mirror.load_hosts(load.rows)
                self._knows_hosts = True
        if load.name == "jobs":
            self._lacks_curves = False
            self._next_curves(begun)
        self._on_change()

    def _next_curves(self, job_ids: list[str]) -> None:
        """Ask for curves, some at a time: what was told before this client heard of it."""
        if job_ids:
            now, later = job_ids[:CURVES_AT_ONCE], job_ids[CURVES_AT_ONCE:]
            asked = self.ask(AskCurves(id=new_id(), jobs=tuple(now)))
            asked.add_done_callback(lambda done: self._on_curves(later, done))

    def _on_curves(self, later: list[str], done: Future[Any]) -> None:
        if done.exception() is not None:
            self._lacks_curves = True  # with the next list of jobs
            return
        with self._lock:
            self._mirror.load_curves(done.result()["curves"])
        self._on_change()
        self._next_curves(later)

    def _on_status(self, done: Future[Any]) -> None:
        if done.exception() is None:
            with self._lock:
                self._mirror.load_status(done.result())
            self._on_change()


def _unanswered(asked: _Asked, why: str) -> Unanswered:
    late = asked.sent and isinstance(asked.request, Command)
    return Unanswered(f"{why}; it may still be done within a minute" if late else why)


def _settle(asked: _Asked, response: OperatorResponse) -> None:
    if not response.ok:
        _fail(asked, AskedInVain(response.message, response.data))
    elif asked.answer.set_running_or_notify_cancel():
        asked.answer.set_result(response.data)


def _fail(asked: _Asked, error: FleetError) -> None:
    # Whoever asked may have gone meanwhile, and cancelled: that must not end this thread.
    if asked.answer.set_running_or_notify_cancel():
        asked.answer.set_exception(error)
