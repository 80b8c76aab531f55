"""The operator's side of the protocol: asks, repeats until answered, gives up at the deadline."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

from broker.client.access import PEOPLE, host_here, open_access
from broker.client.link import Link, LinkSettings
from broker.client.mailbox import Mailbox, feed
from broker.errors import BadMessage, BadTopic, ConfigError
from broker.protocol.events import Connected, Disconnected, Incoming, LinkEvent, Outgoing
from broker.protocol.messages import (
    OPERATOR_RESPONSE,
    AskEvents,
    AskList,
    AskWorkers,
    Command,
    GrantMessage,
    OperatorRequest,
    OperatorResponse,
    decode,
    encode,
)
from broker.protocol.signing import OperatorKey, is_answer, signed_by
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topic, Topics
from broker.sentences import span
from broker.system.address import IS_IT_THERE, Address, text_of
from broker.system.machine import new_id, system_clock
from broker.system.settings import BrokerSettings
from coordinator.client.errors import NotDone, Unreachable
from coordinator.client.patience import SETTLED_S, USUAL_S, Patience
from coordinator.jobs import host_paging

if TYPE_CHECKING:
    from broker.protocol.messages import Status

REPEAT_S: Final = 1.0
MAX_ASIDE: Final = 50_000


class OperatorClient:
    """A connection to the fleet, used as a context manager.

    `watch` are further topic filters, whose messages `messages` yields. `patient`: keep trying to
    connect until the deadline, rather than give up at the first refusal.

    Where nobody has said which broker, it is whoever's that listens on this machine: `named` is
    false. Then `unnamed` is told where that is, once it is connected, and before something is
    changed there, which it may refuse by an error; without it nothing is changed.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        timeout_s: float = USUAL_S,
        *,
        watch: Sequence[str] = (),
        patient: bool = False,
        unnamed: Callable[[Address, bool], None] | None = None,
    ) -> None:
        """Prepare; entering the context connects.

        Raises `ConfigError` for a connection that is not safe, or an identity that does not hold.
        """
        access = open_access(settings, PEOPLE, system_clock().wall_s)
        self.topics = Topics(settings.topic_root)
        self.timeout_s = timeout_s
        name = f"cli-{new_id()[:12]}"
        self.name = f"{access.user}/{name}"
        self._patient = patient
        self._settings = settings
        self._addresses = access.addresses
        self.named = "url" in settings.model_fields_set or access.addresses[0].tls
        self._unnamed = unnamed
        self._mailbox: Mailbox[LinkEvent] = Mailbox()
        self._lost: Disconnected | None = None  # while there is no connection
        self._status = b""  # of the coordinator, as it says itself, or its will does
        self._stirred = False  # it became another, or may have, since somebody asked
        self._ahead: dict[str, float] = {}  # what `ask_ahead` has sent: when to repeat it, by id
        self._silent_since_s: float | None = None  # while questions go unanswered (monotonic)
        # What comes on the watched topics while an answer is awaited.
        self._aside: deque[LinkEvent] = deque(maxlen=MAX_ASIDE)
        more = dict.fromkeys([self.topics.coordinator_status(), *watch])
        filters = [*self.topics.for_operator(self.name), *((name, 1) for name in more)]
        self._link = Link(
            LinkSettings(
                self._addresses,
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

    def __enter__(self) -> Self:
        self._link.start()
        deadline_s = time.monotonic() + self.timeout_s
        where = text_of(self._addresses)
        why = f"{where}: no answer in {self.timeout_s:g} s"
        connected = False
        refusals, answered, denied = 0, False, False
        while not connected and (left_s := deadline_s - time.monotonic()) > 0:
            for event in self._mailbox.take(left_s):
                if isinstance(event, Connected):
                    connected = True
                elif isinstance(event, Disconnected):
                    refusals += 1
                    why, answered, denied = event.why, event.answered, event.denied
                    if not self._patient and refusals >= len(self._addresses):
                        deadline_s = 0.0
                else:
                    self._note(event)
                    self._aside.append(event)  # retained messages may come first
        if connected:
            if not self.named and self._unnamed is not None:
                self._unnamed(self._addresses[0], False)
            return self
        # Aside: a connect to a host that swallows packets takes longer to give up than we have.
        threading.Thread(target=self._link.stop, name="fleet-give-up", daemon=True).start()
        if not answered and "url" not in self._settings.model_fields_set:
            self._check_whose_machine()
        raise Unreachable(self._absence(why, answered=answered, denied=denied))

    def _check_whose_machine(self) -> None:
        """Raise `ConfigError` where only a host has joined: its broker is not this machine's."""
        host = None if self._settings.identity is not None else host_here()
        if host is not None:
            raise ConfigError(
                f"this machine has the identity of a host ({host}) alone, and only a person may "
                "ask: `fleet enroll operator:NAME` (or observer:NAME, who may only look) on the "
                "CA's machine and `fleet join` here, or ask there"
            )

    def _absence(self, why: str, *, answered: bool, denied: bool) -> str:
        """Say that there is no connection, and what may help."""
        if denied and (root := self._named_root()):
            return f"the broker answers, but does not serve this command under {root}\n{why}"
        if answered:
            return (
                f"the broker answers, but does not serve this command ({why})\n"
                "is it this fleet's? see --broker, --root and --identity, and docs/identity.md"
            )
        known = "url" in self._settings.model_fields_set or not self._addresses[0].is_loopback()
        remedy = IS_IT_THERE
        if not known:
            remedy = "is it running? start one with `fleet up`, or name yours with --broker"
        return f"the broker is not reachable ({why})\n{remedy}"

    def _named_root(self) -> str:
        """Return which topic root somebody has named, and what to do if it is not the fleet's."""
        if "topic_root" not in self._settings.model_fields_set:
            return ""
        remedy = "is that the fleet's? else name its own, by --root or [broker] topic_root"
        return f"the topic root {self.topics.root!r}: {remedy}"

    def __exit__(self, *_: object) -> None:
        self._link.stop()

    def ask(self, request: OperatorRequest) -> Any:
        """Return the data of the answer.

        Commands are signed, where there is an operator key, anew at each repetition: a signature
        holds for a minute, and somebody may be more patient than that. Of the answers to them the
        one counts that the key has signed. Raises `NotDone` when the coordinator says no,
        `Unreachable` when it says nothing (sooner where its status says offline), with whether a
        command may still be done, `ConfigError` for an unusable key, or a command to a broker that
        nobody has named.
        """
        topic = self.topics.operator_request(self.name)
        request = self._let_go(request)
        # Whoever only looks needs no key, and may have no right to read it.
        key = self._settings.operator_key() if isinstance(request, Command) else None
        patience = Patience(self.timeout_s, time.monotonic())
        if self._silent_since_s is None:
            self._silent_since_s = time.monotonic()
        repeat_at_s = self._ahead.pop(request.id, 0.0)
        unsigned = ""
        sent_s: float | None = None
        self._stirred = False
        while True:
            now_s = time.monotonic()
            if repeat_at_s and now_s >= repeat_at_s:  # most questions are answered: it costs
                patience.on_status(is_offline=self._is_offline(), now_s=now_s)
            if now_s >= patience.end_s:
                break
            if now_s >= repeat_at_s:
                signed = signed_by(key, topic, request, time.time())
                sent_s = now_s if self._link.publish(Outgoing(topic, encode(signed))) else sent_s
                repeat_at_s = patience.repeat_s(now_s, REPEAT_S)
            response = None
            for event in self._take(min(repeat_at_s, patience.end_s) - now_s):
                found = self._response(event, request.id)
                if found is None:
                    self._aside.append(event)
                elif key is None or self._is_signed(event, key):
                    response = response or found
                else:
                    # The true one comes at once, if it does; to ask again would be refused again.
                    unsigned = found.message or "done"
                    patience.end_by(time.monotonic() + REPEAT_S)
                    repeat_at_s = patience.end_s
            if response is None:
                continue
            self._silent_since_s = None
            if not response.ok:
                raise NotDone(response.message, response.data, response.code)
            return response.data
        if unsigned:
            raise NotDone(
                f"an answer came that the operator key has not signed, so it may be forged: "
                f"{unsigned!r}\nis the operator key the coordinator's? what was done is in "
                "`fleet events`"
            )
        raise Unreachable(f"{self._missing()}{self._what_becomes(request, sent_s)}")

    def _let_go(self, request: OperatorRequest) -> OperatorRequest:
        """Return a request that may be sent: it does not expire while somebody thinks about it."""
        if self.named or not isinstance(request, Command):
            return request
        if self._unnamed is None:
            raise ConfigError(f"{text_of(self._addresses)}: is that the fleet? say so by --broker")
        asked_s = time.monotonic()
        self._unnamed(self._addresses[0], True)
        expires_at = request.expires_at and request.expires_at + time.monotonic() - asked_s
        return request.model_copy(update={"expires_at": expires_at})

    def _what_becomes(self, request: OperatorRequest, sent_s: float | None) -> str:
        """Return what becomes of a command without an answer that was last sent at `sent_s`, if so.

        A request is not retained, and an offline coordinator has no session that would keep it.
        """
        if sent_s is None or not isinstance(request, Command):
            return ""
        since_s = time.monotonic() - sent_s
        if since_s >= SETTLED_S and not self._stirred and self._is_offline():
            return "\nnothing was done"
        # The coordinator allows a minute beyond a command's expiry (`authority.EXPIRY_SLACK_S`).
        return "\nwhat was asked may still be done within a minute"

    def ask_ahead(self, request: OperatorRequest) -> None:
        """Send a question, no command, for whose answer `ask` is to wait later."""
        if self._link.publish(Outgoing(self.topics.operator_request(self.name), encode(request))):
            self._ahead[request.id] = time.monotonic() + REPEAT_S

    def _missing(self) -> str:
        """Say which of the two does not answer, and what may help."""
        if self._lost is not None:
            lost = self._lost
            return self._absence(lost.why, answered=lost.answered, denied=lost.denied)
        since_s = self._silent_since_s
        return self._silence(0.0 if since_s is None else time.monotonic() - since_s)

    def _silence(self, silent_s: float) -> str:
        """Say that the broker answers and the coordinator does not, and what may help."""
        found = self._coordinator()
        broker = f"the broker {text_of(self._addresses)} answers"
        nobody = f"{broker}, but no coordinator did in {span(silent_s)}"
        if found is None:
            root = self._named_root()
            under = f" under {root}" if root else ""
            return (
                f"{nobody}{under}\ndoes one run? it may be coming back to this broker still, and "
                "its log says what keeps it, such as a full disk; else start one with "
                "`fleet coordinator`"
            )
        if found.state == "offline":
            how, then = "it was stopped", "start it again with `fleet coordinator`"
            if found.reason != "goodbye":
                how = "its connection was lost"
                then = f"it may be coming back to this broker still; else {then}"
            return f"{nobody}: it is offline ({how})\nwhat runs goes on; {then}"
        return (
            f"{broker}, but its coordinator has been silent for {span(silent_s)}, though it is "
            "online by its status\n"
            "its log says what keeps it, such as a full disk; --timeout waits longer; to start it "
            "again does no harm, what runs goes on"
        )

    def _take(self, wait_s: float) -> list[LinkEvent]:
        """Return what has come, and remember whether there still is a connection."""
        events = list(self._mailbox.take(wait_s))
        for event in events:
            if isinstance(event, Connected | Disconnected):
                self._lost = event if isinstance(event, Disconnected) else None
                self._stirred = True  # who knows what it was meanwhile
                if self._silent_since_s is not None:  # nobody can hear without a connection
                    self._silent_since_s = time.monotonic()
            else:
                self._note(event)
        return events

    def _note(self, event: LinkEvent) -> None:
        """Remember what the coordinator's status is, if that is what has come."""
        if isinstance(event, Incoming) and event.topic == self.topics.coordinator_status():
            was_told = event.retained and not self._status  # as it was when we connected
            self._stirred |= not was_told and event.payload != self._status
            self._status = event.payload

    def _coordinator(self) -> Status | None:
        """Return what its status is, none where it has none that can be read."""
        from broker.protocol.messages import STATUS  # only here: most questions are answered

        with contextlib.suppress(BadMessage):
            return decode(STATUS, self._status)
        return None

    def _is_offline(self) -> bool:
        found = self._coordinator()
        return found is not None and found.state == "offline"

    def _is_signed(self, event: LinkEvent, key: OperatorKey) -> bool:
        topic = self.topics.operator_response(self.name)
        return isinstance(event, Incoming) and is_answer(key, topic, event.payload)

    def list_jobs(
        self, states: Sequence[Any] = (), models: Sequence[str] = ()
    ) -> list[dict[str, Any]]:
        """Return the rows of all jobs, or those in these states and of these models."""
        rows: list[dict[str, Any]] = []
        offset: int | None = 0
        while offset is not None:
            page = self.ask(
                AskList(id=new_id(), states=tuple(states), models=tuple(models), offset=offset)
            )
            rows += page["jobs"]
            offset = page["next"]
        return rows

    def list_workers(self) -> list[dict[str, Any]]:
        """Return all hosts, page by page."""
        return [row for page in self.host_pages() for row in host_paging.whole(page)]

    def host_pages(self, *, absent: bool = False, brief: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the pages of hosts; while one is looked at, the coordinator makes the next."""
        ask = AskWorkers(id=new_id(), absent=absent, brief=brief)
        while True:
            page = self.ask(ask)
            is_last = page["next"] is None
            if not is_last:
                ask = ask.model_copy(update={"id": new_id(), "offset": page["next"]})
                self.ask_ahead(ask)
            yield page
            if is_last:
                return

    def story(self, wanted: AskEvents, tell: Callable[[list[dict[str, Any]]], object]) -> AskEvents:
        """Hand what has happened to `tell`, page by page; return how to ask for what comes next."""
        more = True
        while more:
            page = self.ask(wanted)
            tell(page["events"])
            more = page["more"]
            after = (page["next"][0], page["next"][1])
            wanted = wanted.model_copy(update={"id": new_id(), "after": after})
        return wanted

    def messages(self, wait_s: float) -> Iterator[tuple[Topic, bytes]]:
        """Yield what has come on the watched topics, waiting at most `wait_s` for the first."""
        events = [*self._aside, *self._take(0.0 if self._aside else wait_s)]
        self._aside.clear()
        for event in events:
            if isinstance(event, Incoming):
                try:
                    yield self.topics.parse(event.topic), event.payload
                except BadTopic:
                    continue

    def grant(self, message: GrantMessage) -> None:
        """Tell the coordinator what is missing of the artifact that is being fetched."""
        self._link.publish(Outgoing(self.topics.download_grant(self.name), encode(message)))

    def _response(self, event: LinkEvent, request_id: str) -> OperatorResponse | None:
        if not isinstance(event, Incoming):
            return None
        try:
            if self.topics.parse(event.topic).kind is not Kind.OPERATOR_RESPONSE:
                return None
            response = decode(OPERATOR_RESPONSE, event.payload)
        except (BadTopic, BadMessage):
            return None
        return response if response.id == request_id else None
