"""A client's session, which may outlive its connection (MQTT 5), and the connection itself."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker.embedded.channel import FULL_BYTES, Channel
from broker.embedded.connect import Connect
from broker.embedded.limits import Reason
from broker.embedded.message import Letter, Message, write_publish
from broker.embedded.packets import Code, Kind, answer, disconnect
from broker.embedded.subscriptions import Subscription
from broker.embedded.tls import Guest
from broker.protocol.acl import Rights

if TYPE_CHECKING:
    from broker.embedded.routing import Router

MAX_ID: Final = 65_535


@dataclass(eq=False, slots=True)
class Client:
    """A connection that was admitted. `last_s` is when its last packet came (loop's clock)."""

    channel: Channel
    asked: Connect
    name: str  # of its certificate; empty on loopback
    rights: Rights | None
    guest: Guest | None
    last_s: float = 0.0
    answers_bytes: int = 0  # since the client last caught up

    def answer(self, packet: bytes) -> None:
        """Send the answer to a packet, unless it is larger than the client takes."""
        if len(packet) <= self.asked.max_packet_bytes:
            if self.channel.unsent_bytes > FULL_BYTES:
                self.answers_bytes += len(packet)
            self.channel.write(packet)

    async def catch_up(self) -> None:
        """Wait, if the client does not read its answers, until it does."""
        if self.answers_bytes > FULL_BYTES:
            await self.channel.drain()
            self.answers_bytes = 0

    def end(self, code: Code) -> None:
        """End the connection at once; MQTT 5 tells the client why."""
        self.tell_end(code)
        self.channel.cut()

    def tell_end(self, code: Code) -> None:
        """Tell a client of MQTT 5 why its connection ends."""
        if self.asked.level == 5:
            self.channel.write(disconnect(code))

    def is_silent(self, now_s: float) -> bool:
        """Tell whether nothing came for 1.5 times the keepalive (MQTT 3.1.1, 3.1.2.10)."""
        return 0 < 1.5 * self.asked.keepalive_s < now_s - self.last_s


class Session:
    """The subscriptions of one client id, and the messages it has yet to get."""

    def __init__(self, client: Client, router: Router) -> None:
        self.id = client.asked.client_id
        self.name = client.name
        self.rights = client.rights
        self._router = router
        self.client: Client | None = None
        self.filters: dict[str, Subscription] = {}
        self.held: dict[int, Message] = {}  # QoS 2, received and not released
        self.asked: dict[str, None] = {}  # filters whose retained messages are due
        self.teller: asyncio.Task[None] | None = None
        self.will: Message | None = None
        self.will_due_s = math.inf
        self.expiry_s = 0  # how long it is kept without a connection
        self.expires_s = math.inf
        self.is_over = False
        self.progress = asyncio.Event()  # set when something was acknowledged
        self._waiting: deque[Letter] = deque()  # QoS 1 and 2, not sent
        self._sent: dict[int, Letter] = {}  # by packet id, not acknowledged
        self._again: deque[int] = deque()  # packet ids that an earlier connection has sent
        self._in_flight = 0
        self._backlog_bytes = 0
        self._last_id = 0

    @property
    def unsent_bytes(self) -> int:
        """How much waits to be sent, or to be acknowledged if it may have to be sent again."""
        return self._backlog_bytes + (self.client.channel.unsent_bytes if self.client else 0)

    @property
    def waiting_bytes(self) -> int:
        """How much is kept in memory for this session."""
        held_bytes = sum(message.size_bytes for message in self.held.values())
        unread_bytes = self.client.channel.unread_bytes if self.client else 0
        return self.unsent_bytes + held_bytes + unread_bytes

    def begin(self, client: Client) -> None:
        """Take up a new connection."""
        self.client, self.rights = client, client.rights
        self.will, self.will_due_s = client.asked.will, math.inf
        self.expiry_s, self.expires_s = client.asked.expiry_s, math.inf
        self.asked, self.teller = {}, None
        self._in_flight = 0
        self._again = deque(self._sent)

    def drop(self, code: Code) -> None:
        """End the connection, and keep nothing for the next."""
        self.is_over, self.expiry_s = True, 0
        self._waiting.clear()
        self._sent.clear()
        self.held.clear()
        self._backlog_bytes = 0
        if self.client is not None:
            self.client.end(code)

    def send(self, message: Message, by: Sequence[Subscription], *, retained: bool = False) -> None:
        """Send a message in turn, or drop it when too much waits already."""
        qos = min(message.qos, max(one.qos for one in by))
        if self.is_over or (self.client is None and not qos):
            return
        retain = retained or (message.retain and any(one.as_published for one in by))
        identifiers = tuple(dict.fromkeys(one.identifier for one in by if one.identifier))
        letter = Letter(message, qos, retain, identifiers)
        if not self._admits(letter.size_bytes):
            return
        if not qos:
            self._transmit(letter, message, 0)
            return
        self._waiting.append(letter)
        self._backlog_bytes += letter.size_bytes
        self.send_waiting()

    def _admits(self, size_bytes: int) -> bool:
        limits = self._router.settings
        is_full = self.unsent_bytes + size_bytes > limits.max_unsent_bytes
        if is_full or len(self._waiting) + len(self._sent) >= limits.max_unsent:
            detail = f"client {self.id!r} does not keep up with its messages"
            self._router.refusals.add(Reason.SLOW, detail)
            return False
        self._router.queued(size_bytes)  # which may end this session
        return not self.is_over

    def send_waiting(self) -> None:
        """Send what waits, as much as the client takes at once; first what is sent again (4.4)."""
        client = self.client
        while client is not None and self._in_flight < client.asked.receive_maximum:
            if dup := bool(self._again):
                packet_id = self._again.popleft()
            elif self._waiting:
                packet_id = self._free_id()
                self._sent[packet_id] = self._waiting.popleft()
            else:
                return
            if self._send(packet_id, self._sent[packet_id], dup=dup):
                self._in_flight += 1
            else:
                self._backlog_bytes -= self._sent.pop(packet_id).size_bytes

    def _send(self, packet_id: int, letter: Letter, *, dup: bool) -> bool:
        message, client = letter.message, self.client
        if message is None:
            self._answer(Kind.PUBREL, packet_id)
            return True
        if message.is_over(self._router.now_s()):
            return False
        if not self._transmit(letter, message, packet_id, dup=dup):
            return False
        if client is not None and not client.asked.expiry_s:
            self._strip(letter)  # there is no later connection to send it again
        return True

    def _transmit(
        self, letter: Letter, message: Message, packet_id: int, *, dup: bool = False
    ) -> bool:
        """Send one now; false for one that is larger than the client takes (3.1.2.11.4)."""
        if (client := self.client) is None:
            return False
        now_s, level = self._router.now_s(), client.asked.level
        data = write_publish(level, letter, message, packet_id, dup=dup, now_s=now_s)
        if len(data) > client.asked.max_packet_bytes:
            detail = f"client {self.id!r} takes no packet of {len(data)} bytes: it has said so"
            self._router.refusals.add(Reason.OVERSIZE, detail)
            return False
        client.channel.write(data)
        return True

    def _strip(self, letter: Letter) -> None:
        """Let go of a message that is not sent again."""
        self._backlog_bytes -= letter.size_bytes
        letter.message = None
        self._backlog_bytes += letter.size_bytes

    def _free_id(self) -> int:
        while True:
            self._last_id = self._last_id % MAX_ID + 1
            if self._last_id not in self._sent:
                return self._last_id

    def _answer(self, kind: Kind, packet_id: int, code: Code = Code.SUCCESS) -> None:
        if self.client is not None:
            self.client.answer(answer(self.client.asked.level, kind, packet_id, code))

    def on_acknowledged(self, packet_id: int, qos: int) -> None:
        """A PUBACK, or at QoS 2 a PUBCOMP, has come: send what waits behind it."""
        letter = self._sent.get(packet_id)
        if letter is None or letter.qos != qos:
            return
        del self._sent[packet_id]
        self._backlog_bytes -= letter.size_bytes
        if packet_id in self._again:
            self._again.remove(packet_id)  # acknowledged before it was sent again
        else:
            self._in_flight -= 1
        self.send_waiting()
        self.progress.set()

    def on_received(self, packet_id: int, code: int) -> None:
        """A PUBREC has come: release the message; an error code ends it."""
        letter = self._sent.get(packet_id)
        if letter is None or letter.qos != 2:
            self._answer(Kind.PUBREL, packet_id, Code.ID_NOT_FOUND)
        elif code >= 0x80:
            self.on_acknowledged(packet_id, 2)
        else:
            self._strip(letter)
            self._answer(Kind.PUBREL, packet_id)

    async def room(self) -> None:
        """Wait while the client does not keep up. Raises `OSError` when it is gone."""
        while self.client is not None:
            await self.client.channel.drain()
            if not self._waiting and 2 * len(self._sent) < self._router.settings.max_unsent:
                return
            self.progress.clear()
            await self.progress.wait()
