"""One connection that was let in, and its end of the wire."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any, Final

from amqtt.adapters import StreamWriterAdapter
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.mqtt.publish import PublishPacket
from amqtt.session import Session

from broker.acl import Rights
from broker.embedded.identity import Guest
from broker.embedded.outbox import Outbox
from broker.embedded.packets import PacketReader

CLOSE_TIMEOUT_S: Final = 1.0


class Wire(StreamWriterAdapter):
    """Replaces: amqtt closes a connection when all is sent: never, if the client does not read."""

    is_closed: bool

    def cut(self) -> None:
        """End the connection at once; what is not sent is lost."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Send what is left and end the connection, or end it anyway after a second."""
        if self.is_closed:
            return
        self.is_closed = True
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._writer.wait_closed()
        self.cut()


class Handler(BrokerProtocolHandler):
    """amqtt's handler, for what it sends. It reads nothing: see `EmbeddedBroker._converse`."""

    async def reply(self, packet: Any) -> None:
        """Send an answer in turn with what else is sent."""
        await self._send_packet(packet)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A connection whose CONNECT is in order, with the rights of its name; none on loopback."""

    name: str
    guest: Guest | None
    rights: Rights | None
    session: Session
    handler: Handler
    packets: PacketReader
    wire: Wire


@dataclass(eq=False, slots=True)
class Client:
    """A connection that was let in. `last_s` is when its last packet came, by the loop's clock."""

    arrival: Arrival
    outbox: Outbox
    last_s: float
    filters: set[str] = field(default_factory=set)
    held: dict[int, PublishPacket] = field(default_factory=dict)  # QoS 2, not released yet
    asked: dict[str, int] = field(default_factory=dict)  # filters whose retained messages are due
    teller: asyncio.Task[None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def id(self) -> str:
        """Its client id; with an identity, that of its name's own."""
        return str(self.arrival.session.client_id)

    def is_silent(self, now_s: float) -> bool:
        """Tell whether nothing has come in 1.5 times the keepalive (MQTT 3.1.1, 3.1.2.10)."""
        keepalive_s = self.arrival.session.keep_alive
        return keepalive_s > 0 and now_s - self.last_s > 1.5 * keepalive_s
