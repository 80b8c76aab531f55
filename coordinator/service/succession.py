"""Whether a coordinator may serve a fleet that another one has served: `Succession` does no IO.

A broker knows the coordinators of one root by one client id, and drops the first when a second
connects. So a coordinator looks first. Whoever serves has published a retained `Holder`: its
installation and its process. No will changes that, so a coordinator that never served leaves it as
it was. If the holder is another coordinator and has not said goodbye, this one waits: the other
reconnects by itself, which drops this one, and then this one yields.

An earlier process of the same installation is no other: a lock on the state folder keeps two from
running. But a process that was the holder, and later finds another process of its installation in
its place, has met a clone of its machine.

While it serves it waits for its own `Holder`, which shows that the broker's rights allow it: a
broker with older files drops it silently, or ends the connection. A coordinator that has never come
past that ends after a while.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from broker.client.link import Link
from broker.errors import BadMessage, ConfigError
from broker.protocol.acl import REWRITE_RIGHTS
from broker.protocol.link_events import Connected, Disconnected, Incoming, Outgoing
from broker.protocol.messages import HOLDER, STATUS, Holder, decode, encode
from broker.protocol.topics import Topics

log = logging.getLogger("fleet.coordinator")

WAIT_S: Final = 20.0  # a coordinator that was dropped reconnects within a second or two
ANSWER_S: Final = 5.0  # for our own message, and what is retained before it
SUBSCRIBE_S: Final = 10.0
HEARD_S: Final = 30.0  # for our own holder: what is retained of all hosts may come before
DENIED_S: Final = 60.0  # a cluster may refuse while one of its nodes is away


class Do(Enum):
    """What is to be done."""

    NOTHING = auto()
    PASS = auto()  # hand the event to the shell
    ASK = auto()  # publish `word` to ourselves
    ENTER = auto()  # subscribe to what a coordinator hears
    SERVE = auto()  # publish the holder, and hand the event to the shell
    DROP = auto()  # end the connection, for the next one
    YIELD = auto()  # end the program


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done, and the message for people."""

    do: Do
    said: str = ""


class _Phase(Enum):
    AWAY = auto()
    LOOKING = auto()  # until our own message is back: what is retained comes before it
    WAITING = auto()  # for the holder to come back
    ENTERING = auto()  # until the subscriptions are granted
    SERVING = auto()


_PASS: Final = Step(Do.PASS)
_IN: Final = frozenset({_Phase.ENTERING, _Phase.SERVING})


class Succession:
    """Follows one coordinator's connections; `own` is its holder message. Times are monotonic."""

    def __init__(self, topics: Topics, own: Holder) -> None:
        """Begin without a connection."""
        self._topics = topics
        self._own = own
        self._looks_at = {topic for topic, _ in topics.before_coordinator()}
        self._phase = _Phase.AWAY
        self._session = ""
        self._holder: Holder | None = None
        self._has_left = False
        self._due_s: float | None = None
        self._heard = False  # our own holder, on this connection
        self._was_holder = False  # the broker has told us so, at least once
        self._followed = ""  # the earlier process of this installation; a broker may recall it
        self._is_let = False  # the broker has let us serve, at least once
        self._denied_s: float | None = None  # since when it has not, again and again

    @property
    def serves(self) -> bool:
        """Whether the fleet is ours, and the broker there."""
        return self._phase is _Phase.SERVING

    @property
    def word(self) -> bytes:
        """What to say to ourselves; new at each connection."""
        return self._session.encode()

    def next_deadline(self) -> float | None:
        """Return when `on_time` is wanted, or none."""
        return self._due_s

    def handle(self, event: Connected | Disconnected | Incoming, now_s: float) -> Step:
        """Take what the link tells."""
        if isinstance(event, Incoming):
            if self._phase not in _IN:
                return self._on_message(event, now_s)
            if self._phase is _Phase.SERVING and event.topic == self._topics.holder():
                self._note_own(event)
            return _PASS
        match event:
            case Connected(session) if self._phase is _Phase.ENTERING and session == self._session:
                self._heard = False
                self._turn(_Phase.SERVING, now_s + HEARD_S)
                return Step(Do.SERVE)
            case Connected(session):
                self._session = session
                self._turn(_Phase.LOOKING, now_s + ANSWER_S)
                return Step(Do.ASK)
            case Disconnected():
                return self._on_disconnected(event, now_s)

    def on_time(self, now_s: float) -> Step:
        """Time has passed."""
        if self._due_s is None or now_s < self._due_s:
            return Step(Do.NOTHING)
        if self._phase is _Phase.LOOKING:
            return self._judge(now_s)
        if self._phase is _Phase.WAITING:
            self._turn(_Phase.ENTERING, now_s + SUBSCRIBE_S)
            return Step(Do.ENTER, "the other coordinator has not come back: taking over")
        self._due_s = None
        if self._phase is _Phase.SERVING:
            # Nothing else rests on it: the fleet is served, without that protection.
            self._is_let = True
            topic = self._topics.holder()
            return Step(
                Do.NOTHING,
                f"{topic} did not come back in {HEARD_S:.0f} s: the broker seems to drop it, and a "
                f"second coordinator would not know of this one; {REWRITE_RIGHTS}",
            )
        return Step(Do.DROP, f"no answer to the subscription in {SUBSCRIBE_S:.0f} s")

    def _on_disconnected(self, event: Disconnected, now_s: float) -> Step:
        said = self._why_denied(event)
        rival = self._rival()
        if rival is not None and self._phase in {_Phase.LOOKING, _Phase.WAITING}:
            return self._yield_to(rival)
        self._holder, self._has_left = None, False
        self._turn(_Phase.AWAY, None)
        if not said or self._is_let:
            self._denied_s = None
        elif self._denied_s is None:
            self._denied_s = now_s
        elif now_s - self._denied_s >= DENIED_S:
            lasted_s = now_s - self._denied_s
            return Step(Do.YIELD, f"the broker has not let it serve for {lasted_s:.0f} s: {said}")
        return _PASS if event.denied else Step(Do.PASS, said)

    def _why_denied(self, event: Disconnected) -> str:
        """Say what the broker seems not to allow, if that ended the connection; else nothing."""
        if event.denied:
            return str(event)
        if self._phase is not _Phase.SERVING or self._heard:
            return ""
        topic = self._topics.holder()
        return (
            f"{event.why}: it ended before {topic} came back, which the broker may not let a "
            f"coordinator say; {REWRITE_RIGHTS}"
        )

    def _note_own(self, message: Incoming) -> None:
        if _holder_in(message.payload) == self._own:
            self._heard = self._is_let = self._was_holder = True
            self._due_s = self._denied_s = None

    def _on_message(self, message: Incoming, now_s: float) -> Step:
        if message.topic not in self._looks_at:
            # It is from before the connection was lost, when we served.
            return Step(Do.NOTHING) if self._phase is _Phase.WAITING else _PASS
        if message.topic == self._topics.holder():
            return self._on_holder(message)
        if message.topic == self._topics.coordinator_status():
            self._has_left = _is_goodbye(message.payload)
        elif message.payload == self.word and self._phase is _Phase.LOOKING:
            return self._judge(now_s)
        return Step(Do.NOTHING)

    def _on_holder(self, message: Incoming) -> Step:
        said = _holder_in(message.payload)
        if said is None and message.payload and not message.retained:
            return Step(Do.NOTHING)  # somebody tries whether it gets through
        self._holder = said
        rival = self._rival()
        if rival is not None and self._phase is _Phase.WAITING and not message.retained:
            return self._yield_to(rival)
        return Step(Do.NOTHING)

    def _judge(self, now_s: float) -> Step:
        rival = self._rival()
        if rival is None:
            if self._holder is not None and not self._was_holder:
                self._followed = self._holder.instance
            self._turn(_Phase.ENTERING, now_s + SUBSCRIBE_S)
            return Step(Do.ENTER)
        self._turn(_Phase.WAITING, now_s + WAIT_S)
        said = (
            f"{self._name(rival)} served this fleet last, and has not said goodbye: it has "
            f"{WAIT_S:.0f} s to come back before this one serves"
        )
        return Step(Do.NOTHING, said)

    def _rival(self) -> Holder | None:
        """Who else holds the fleet. A copy of our ledger elsewhere is another one."""
        holder, own = self._holder, self._own
        if holder is None or self._has_left or holder.instance == own.instance:
            return None
        is_earlier = not self._was_holder or holder.instance == self._followed
        return None if holder.installation == own.installation and is_earlier else holder

    def _name(self, other: Holder) -> str:
        what = "another ledger"
        if other.installation == self._own.installation:
            what = "a clone of this installation"
        elif other.ledger == self._own.ledger:
            what = "a copy of this ledger"
        return f"a coordinator with {what} (on {other.machine}, instance {other.instance})"

    def _yield_to(self, rival: Holder) -> Step:
        said = (
            f"topic root {self._topics.root!r}: {self._name(rival)} serves this fleet; stop that "
            "one first, or give this one another root ([broker] topic_root); if that one has "
            "ended, start this one again"
        )
        return Step(Do.YIELD, said)

    def _turn(self, phase: _Phase, due_s: float | None) -> None:
        self._phase, self._due_s = phase, due_s


def _holder_in(payload: bytes) -> Holder | None:
    try:
        return decode(HOLDER, payload) if payload else None
    except BadMessage:
        return None


def _is_goodbye(payload: bytes) -> bool:
    try:
        return bool(payload) and decode(STATUS, payload).reason == "goodbye"
    except BadMessage:
        return False


class Entrance(Succession):
    """Stands between a link and a shell.

    `own` is what it says while it serves, `filters` what it then hears; the link itself subscribes
    to `Topics.before_coordinator`.
    """

    def __init__(
        self, link: Link, topics: Topics, own: Holder, filters: Sequence[tuple[str, int]]
    ) -> None:
        """Begin without a connection."""
        super().__init__(topics, own)
        self._link = link
        self._filters = filters
        self._said_holder = Outgoing(topics.holder(), encode(own), 1, retain=True)
        self._echo = topics.echo("coordinator")

    def publish(self, *messages: Outgoing) -> bool:
        """Hand messages to the link, as its `publish`; false, and nothing done, unless we serve."""
        return self.serves and self._link.publish(*messages)

    def admits(self, event: Connected | Disconnected | Incoming, now_s: float) -> bool:
        """Take an event of the link (`now_s` monotonic); tell whether it is for the shell.

        Raises `ConfigError` when another coordinator serves this fleet.
        """
        return self._carry_out(self.handle(event, now_s))

    def passes(self, now_s: float) -> None:
        """Do what is due (monotonic)."""
        self._carry_out(self.on_time(now_s))

    def _carry_out(self, step: Step) -> bool:
        match step.do:
            case Do.YIELD:
                raise ConfigError(step.said)
            case Do.DROP:
                self._link.drop(step.said)
                return False
            case Do.ASK:
                self._link.publish(Outgoing(self._echo, self.word, 1))
            case Do.ENTER:
                self._link.subscribe(self._filters)
            case Do.SERVE:
                self._link.publish(self._said_holder)
        if step.said:
            log.warning("%s", step.said)
        return step.do in {Do.PASS, Do.SERVE}
