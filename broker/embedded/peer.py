"""One connection that was let in."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from broker.embedded.outbox import Outbox
from broker.embedded.packets import Cutter, Message
from broker.embedded.packets5 import disconnect
from broker.embedded.reason_codes import Code
from broker.embedded.tls import Guest
from broker.embedded.wire import Wire
from broker.protocol.acl import Rights

# Somebody's rights, as the broker asks for them: at each message.


class Gate:
    """The rights of one name, made ready: the answers are those of `Rights`.

    One pattern takes 0.2 to 1 us for a message, where going through the filters took 6 to 15.
    """

    __slots__ = ("_publish", "_receive", "_rights")

    def __init__(self, rights: Rights) -> None:
        self._rights = rights
        self._publish = _pattern(rights.publish)
        self._receive = _pattern(rights.subscribe)

    def may_publish(self, topic: str) -> bool:
        """Tell whether a message to `topic`, a will too, may go out."""
        return self._publish.fullmatch(topic) is not None

    def may_receive(self, topic: str) -> bool:
        """Tell whether a message on `topic` may be sent to whoever has these rights."""
        return self._receive.fullmatch(topic) is not None

    def may_subscribe(self, filter_: str) -> bool:
        """Tell whether a subscription asks for nothing but what may be sent."""
        return self._rights.may_subscribe(filter_)


def _pattern(filters: Iterable[str]) -> re.Pattern[str]:
    """Return what matches the topics that match any filter (`broker.protocol.acl.matches`)."""
    patterns = [_one(filter_) for filter_ in filters]
    return re.compile("|".join(patterns) if patterns else r"(?!)")


def _one(filter_: str) -> str:
    """Return the pattern of one filter; with a wildcard at its start it excludes `$` topics."""
    pattern = r"(?!\$)" if filter_.startswith(("+", "#")) else ""
    for at, level in enumerate(filter_.split("/")):
        slash = "/" if at else ""
        if level == "#":
            # Of `a/#`, `a` is part, too; `+` and `#` are nobody's to publish to.
            return pattern + (r"(?:/[^+#]*)?" if at else r"[^+#]*")
        pattern += slash + (r"[^/+#]*" if level == "+" else re.escape(level))
    return pattern


MAX_HELD: Final = 20  # QoS 2 messages that their sender has not released
MAX_RECEIVE: Final = 65_535
MAX_PACKET_BYTES: Final = 268_435_460  # that MQTT has


@dataclass(frozen=True, slots=True)
class Session:
    """What a CONNECT asks for, and may have. Its password is looked at by nobody, and not kept.

    Replaces: amqtt's session bears a state machine, four queues and a handler with as many again:
    31 KiB and 0.13 ms for each host that connects.
    """

    client_id: str
    keepalive_s: int
    will: Message | None
    level: int  # of the protocol: 4 is MQTT 3.1.1, 5 is MQTT 5, of which all that follows is
    is_clean: bool = True
    assigned_id: str = ""  # where the client had none
    expiry_s: int = 0
    will_delay_s: int = 0
    receive_maximum: int = MAX_RECEIVE
    max_packet_bytes: int = MAX_PACKET_BYTES


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
    filters: dict[str, int] = field(default_factory=dict)  # and what each grants
    held: dict[int, Message] = field(default_factory=dict)  # QoS 2, not released yet
    asked: dict[str, int] = field(default_factory=dict)  # filters whose retained messages are due
    teller: asyncio.Task[None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    expiry_s: int = field(init=False)  # how long its session is kept from its end on
    gate: Gate | None = field(init=False)
    send: Callable[[Message, int], bool] = field(init=False)

    def __post_init__(self) -> None:
        """Have at hand what each message asks for."""
        self.expiry_s = self.arrival.session.expiry_s
        self.gate = self.arrival.gate
        self.send = self.outbox.send

    @property
    def id(self) -> str:
        """Its client id; with an identity, that of its name's own."""
        return self.arrival.session.client_id

    @property
    def waiting_bytes(self) -> int:
        """How much is kept for it: what it is yet to read, and what it is yet to end."""
        arrival = self.arrival
        begun = arrival.cutter.waiting_bytes + arrival.wire.undecoded_bytes
        return self.outbox.unsent_bytes + begun + held_bytes(self.held)

    def tell_end(self, code: Code) -> None:
        """Say why the connection is about to end, to a client of MQTT 5."""
        if self.arrival.session.level == 5:
            self.outbox.flush()
            self.arrival.wire.write(disconnect(code))

    def dismiss(self, code: Code, *, for_good: bool = False) -> None:
        """End the connection at once; `for_good` with all that would be kept for the next."""
        if for_good:
            self.expiry_s = 0
        self.tell_end(code)
        self.arrival.wire.cut()

    def is_silent(self, now_s: float) -> bool:
        """Tell whether nothing has come in 1.5 times the keepalive (MQTT 3.1.1, 3.1.2.10)."""
        keepalive_s = self.arrival.session.keepalive_s
        return keepalive_s > 0 and now_s - self.last_s > 1.5 * keepalive_s


def held_bytes(held: dict[int, Message]) -> int:
    """Return how much is held for messages that were not released."""
    return sum(message.size_bytes for message in held.values())
