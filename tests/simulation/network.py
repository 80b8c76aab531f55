"""A broker and the ways to it: everything that MQTT 3.1.1 and a bad network may do to a message."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from broker.client.link import STEADY_S
from broker.clock import backoff_s
from broker.protocol.link_events import Connected, Disconnected, Incoming, LinkEvent, Outgoing

from .clock import Timeline

KEEPALIVE_S: Final = 30.0
RETRY_BASE_S: Final = 0.5
RETRY_CAP_S: Final = 20.0
RETURN_CAP_S: Final = 4.0  # after a connection that was ended


@dataclass(slots=True)
class Weather:
    """How the network is now. Shares are of all messages; the latency is a median, in seconds."""

    loss: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0
    corrupt_chunk: float = 0.0
    latency_s: float = 0.005


@dataclass(frozen=True, slots=True)
class Quirks:
    """What some brokers do: see the measured facts of amqtt, RabbitMQ and NATS."""

    no_retained_on_wildcards: bool = False
    retained_unasked: bool = False


@dataclass(slots=True)
class Session:
    """One connection as the broker sees it."""

    link: Link
    session: str
    takes: Filters
    plain: frozenset[str]
    will: Outgoing | None


class Filters(dict[str, bool]):
    """Whether a client has subscribed to a topic."""

    def __init__(self, filters: tuple[tuple[str, int], ...]) -> None:
        self._pattern = re.compile("|".join(_regex(filter_) for filter_, _ in filters))

    def __missing__(self, topic: str) -> bool:
        taken = self[topic] = self._pattern.fullmatch(topic) is not None
        return taken


class Link:
    """One client's way to the broker: as `broker.client.link.Link` behaves, without the sockets."""

    def __init__(
        self,
        broker: Broker,
        client_id: str,
        filters: tuple[tuple[str, int], ...],
        inbox: Callable[[LinkEvent], object],
        will: Callable[[str], Outgoing] | None,
        new_id: Callable[[], str],
        rng: random.Random,
    ) -> None:
        self.client_id = client_id
        self.connected = False
        self.stopped = False
        self._broker = broker
        self._takes = Filters(filters)
        self._plain = frozenset(f for f, _ in filters if "+" not in f and "#" not in f)
        self._inbox = inbox
        self._will = will
        self._new_id = new_id
        self._rng = rng
        self._failures = 0
        self._since_s = 0.0
        self._session: Session | None = None

    def start(self) -> None:
        self._broker.timeline.after(self._rng.random() * 0.05, self._connect)

    def publish(self, message: Outgoing) -> bool:
        """Send a message, if there is a connection as far as this side knows."""
        if not self.connected or self._session is None:
            return False
        self._broker.receive(self._session, message)
        return True

    def stop(self, last: Outgoing | None) -> None:
        """Leave with a last message."""
        if last is not None:
            self.publish(last)
        self.stopped = True
        if self._session is not None:
            self._broker.leave(self._session)
        self.connected, self._session = False, None

    def die(self) -> None:
        """The process is gone: the system closes the socket, if the network lets it."""
        self.stopped = True
        if self._session is not None:
            self._broker.lose(self._session, closed=True)
        self.connected, self._session = False, None

    def vanish(self) -> None:
        """The machine is gone without a word."""
        self.stopped = True
        if self._session is not None:
            self._broker.lose(self._session, closed=False)
        self.connected, self._session = False, None

    def broken(self, session: Session, why: str) -> None:
        """This side has noticed the end of a connection."""
        if self._session is not session or self.stopped:
            return
        self.connected, self._session = False, None
        if self._broker.timeline.now_s - self._since_s > STEADY_S:
            self._failures = 0
        self._inbox(Disconnected(why))
        self._retry(RETURN_CAP_S)

    def deliver(self, session: Session, message: Incoming) -> None:
        """A message has come all the way."""
        if self._session is session and not self.stopped:
            self._inbox(message)

    def _retry(self, cap_s: float = RETRY_CAP_S) -> None:
        wait_s = backoff_s(self._failures, RETRY_BASE_S, cap_s, self._rng)
        self._failures += 1
        self._broker.timeline.after(wait_s, self._connect)

    def _connect(self) -> None:
        if self.stopped or self._session is not None:
            return
        if not self._broker.reachable(self.client_id):
            self._inbox(Disconnected("refused"))
            self._retry()
            return
        session_id = self._new_id()
        will = self._will(session_id) if self._will else None
        session = Session(self, session_id, self._takes, self._plain, will)
        self._session = session
        self._broker.join(session)
        # Retained messages may come before the link says that it is connected.
        later_s = 3.0 * self._broker.weather.latency_s * self._rng.random()
        self._broker.timeline.after(later_s, lambda: self._announce(session))

    def _announce(self, session: Session) -> None:
        if self._session is session and not self.stopped:
            self.connected = True
            self._since_s = self._broker.timeline.now_s
            self._inbox(Connected(session.session))


class Broker:
    """The broker and the network. Nothing in it is kept by a restart, unless it is told to be."""

    def __init__(self, timeline: Timeline, rng: random.Random, quirks: Quirks) -> None:
        self.timeline = timeline
        self.weather = Weather()
        self.faults: Counter[str] = Counter()
        self.watch: Callable[[str, str, Outgoing], None] | None = None
        self.cut_off: Counter[str] = Counter()  # client id -> partitions that it is behind
        self._rng = rng
        self._quirks = quirks
        self._up = True
        self._sessions: dict[str, Session] = {}
        self._retained: dict[str, bytes] = {}
        self._edge: dict[tuple[str, bool], float] = {}

    def reachable(self, client_id: str) -> bool:
        """Whether a client could connect."""
        return self._up and not self.cut_off.get(client_id)

    def join(self, session: Session) -> None:
        """A connection is taken; one of the same client id ends."""
        earlier = self._sessions.pop(session.link.client_id, None)
        if earlier is not None:
            self._will_of(earlier)
            self.timeline.after(self._delay_s(), lambda: earlier.link.broken(earlier, "takeover"))
        self._sessions[session.link.client_id] = session
        for topic, payload in list(self._retained.items()):
            if self._gives_retained(session, topic):
                self._send(session, Incoming(topic, payload, retained=True))

    def leave(self, session: Session) -> None:
        """A clean end: no will."""
        if self._sessions.get(session.link.client_id) is session:
            del self._sessions[session.link.client_id]

    def lose(self, session: Session, *, closed: bool) -> None:
        """A client is gone; the broker notices at once when its socket was closed."""
        noticed = closed and not self.cut_off[session.link.client_id]
        wait_s = (
            self._delay_s() if noticed else 1.5 * KEEPALIVE_S * (0.7 + 0.3 * self._rng.random())
        )
        self.timeline.after(wait_s, lambda: self._expire(session))

    def receive(self, session: Session, message: Outgoing) -> None:
        """A client sends a message."""
        client_id = session.link.client_id
        if self._sessions.get(client_id) is not session or self.cut_off.get(client_id):
            self.faults["sent into a dead connection"] += 1
            return
        if self._lost():
            return
        delay_s = self._arrival_s(client_id, up=True)
        self.timeline.after(delay_s, partial(self._route, session, message))

    def restart(self, down_s: float, *, forgets: bool) -> None:
        """Everybody is thrown off; sessions are gone, retained messages if it forgets."""
        self._up = False
        sessions, self._sessions = list(self._sessions.values()), {}
        if forgets:
            self._retained.clear()
        for session in sessions:
            self.timeline.after(
                self._delay_s(), lambda session=session: session.link.broken(session, "restart")
            )
        self.timeline.after(down_s, self._come_back)

    def cut(self, clients: list[str]) -> None:
        """A partition begins: nothing passes; either side notices in its own time."""
        for client_id in clients:
            self.cut_off[client_id] += 1
            session = self._sessions.get(client_id)
            if session is not None:
                self._doom(session)

    def heal(self, clients: list[str]) -> None:
        """A partition ends."""
        for client_id in clients:
            self.cut_off[client_id] -= 1

    def half_open(self, client_id: str, *, broker_forgets: bool) -> None:
        """One side of a connection is gone, and the other does not know."""
        session = self._sessions.get(client_id)
        if session is None:
            return
        if broker_forgets:
            self._expire(session)
            wait_s = KEEPALIVE_S * (0.5 + 1.5 * self._rng.random())
            self.timeline.after(wait_s, lambda: session.link.broken(session, "keepalive"))
        else:
            session.link.broken(session, "reset")

    def reset(self, client_id: str, for_s: float) -> None:
        """A connection ends on both sides at once, and for a while new ones are refused."""
        session = self._sessions.get(client_id)
        if session is not None:
            self._expire(session)
            session.link.broken(session, "reset")
        self.cut_off[client_id] += 1
        self.timeline.after(for_s, lambda: self.heal([client_id]))

    def _come_back(self) -> None:
        self._up = True

    def _doom(self, session: Session) -> None:
        """A connection behind a partition ends on each side when its keepalive does."""

        def broker_side() -> None:
            if self.cut_off[session.link.client_id]:
                self._expire(session)
                session_ends()

        def session_ends() -> None:
            later_s = KEEPALIVE_S * self._rng.random()
            self.timeline.after(later_s, lambda: session.link.broken(session, "keepalive"))

        def client_side() -> None:
            if self.cut_off[session.link.client_id]:
                session.link.broken(session, "keepalive")

        self.timeline.after(1.5 * KEEPALIVE_S, broker_side)
        self.timeline.after(KEEPALIVE_S * (1.0 + self._rng.random()), client_side)

    def _expire(self, session: Session) -> None:
        if self._sessions.get(session.link.client_id) is session:
            del self._sessions[session.link.client_id]
            self._will_of(session)

    def _will_of(self, session: Session) -> None:
        if session.will is not None:
            self._fan_out(session.link.client_id, session.will)

    def _route(self, session: Session, message: Outgoing) -> None:
        if self._up and self._sessions.get(session.link.client_id) is session:
            self._fan_out(session.link.client_id, message)

    def _fan_out(self, sender: str, message: Outgoing) -> None:
        if self.watch is not None:
            self.watch(sender, "broker", message)
        if message.retain:
            if message.payload:
                self._retained[message.topic] = message.payload
            else:
                self._retained.pop(message.topic, None)
        incoming = Incoming(message.topic, message.payload)
        for session in list(self._sessions.values()):
            if session.takes[message.topic]:
                self._send(session, incoming)

    def _send(self, session: Session, message: Incoming) -> None:
        client_id = session.link.client_id
        if self.cut_off.get(client_id) or self._lost():
            return
        is_chunk = "/chunk/" in message.topic or "/push/" in message.topic
        if is_chunk and message.payload and self._rng.random() < self.weather.corrupt_chunk:
            self.faults["chunk corrupted"] += 1
            at = self._rng.randrange(len(message.payload))
            payload = bytearray(message.payload)
            payload[at] ^= 0x40
            message = Incoming(message.topic, bytes(payload), message.retained)
        times = 1
        if self.weather.repeat and self._rng.random() < self.weather.repeat:
            self.faults["message repeated"] += 1
            times = 2
        for _ in range(times):
            delay_s = self._arrival_s(client_id, up=False)
            self.timeline.after(delay_s, partial(session.link.deliver, session, message))

    def _lost(self) -> bool:
        if self.weather.loss and self._rng.random() < self.weather.loss:
            self.faults["message lost"] += 1
            return True
        return False

    def _gives_retained(self, session: Session, topic: str) -> bool:
        if self._quirks.retained_unasked and self._rng.random() < 0.3:
            return True
        if not session.takes[topic]:
            return False
        return topic in session.plain or not self._quirks.no_retained_on_wildcards

    def _delay_s(self) -> float:
        return self.weather.latency_s * (0.5 + self._rng.random())

    def _arrival_s(self, client_id: str, *, up: bool) -> float:
        """How long a message takes; those of one connection keep their order, unless it storms."""
        delay_s = self._delay_s()
        if self.weather.reorder and self._rng.random() < self.weather.reorder:
            self.faults["message overtaken"] += 1
            return delay_s + self._rng.expovariate(0.4)
        now_s = self.timeline.now_s
        edge_s = max(self._edge.get((client_id, up), 0.0), now_s + delay_s)
        self._edge[(client_id, up)] = edge_s
        return edge_s - now_s


def _regex(filter_: str) -> str:
    return re.escape(filter_).replace(r"\+", "[^/]*").replace("+", "[^/]*").replace(r"\#", ".*")
