"""One connection that was let in."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from broker.embedded.gate import Gate
from broker.embedded.identity import Guest
from broker.embedded.outbox import Outbox
from broker.embedded.packets import Cutter, Message
from broker.embedded.wire import Wire


@dataclass(frozen=True, slots=True)
class Session:
    """What a CONNECT asks for, and may have. Its password is looked at by nobody, and not kept.

    Replaces: amqtt's session bears a state machine, four queues and a handler with as many again:
    31 KiB and 0.13 ms for each host that connects.
    """

    client_id: str
    keepalive_s: int
    will: Message | None
    will_is_retained: bool


@dataclass(frozen=True, slots=True)
class Arrival:
    """A connection whose CONNECT is in order, with the rights of its name; none on loopback."""

    name: str
    guest: Guest | None
    gate: Gate | None
    session: Session
    cutter: Cutter
    wire: Wire


@dataclass(eq=False, slots=True)
class Client:
    """A connection that was let in. `last_s` is when its last packet came, by the loop's clock."""

    arrival: Arrival
    outbox: Outbox
    last_s: float
    filters: set[str] = field(default_factory=set)
    held: dict[int, tuple[Message, bool]] = field(default_factory=dict)  # QoS 2, not released yet
    asked: dict[str, int] = field(default_factory=dict)  # filters whose retained messages are due
    teller: asyncio.Task[None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def id(self) -> str:
        """Its client id; with an identity, that of its name's own."""
        return self.arrival.session.client_id

    @property
    def waiting_bytes(self) -> int:
        """How much is kept for it: what it is yet to read, and what it is yet to end."""
        held = sum(len(message.payload) for message, _ in self.held.values())
        arrival = self.arrival
        begun = arrival.cutter.waiting_bytes + arrival.wire.undecoded_bytes
        return self.outbox.unsent_bytes + begun + held

    def is_silent(self, now_s: float) -> bool:
        """Tell whether nothing has come in 1.5 times the keepalive (MQTT 3.1.1, 3.1.2.10)."""
        keepalive_s = self.arrival.session.keepalive_s
        return keepalive_s > 0 and now_s - self.last_s > 1.5 * keepalive_s
