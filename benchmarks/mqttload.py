"""Light MQTT 3.1.1 clients: many in one event loop, so that the broker is measured.

A client library would take more time than the broker does. What is published at QoS 1 is not sent
again: the fleet's own protocol repeats what matters.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import Final, cast

from tests.harness.rawmqtt import packet, text

DEADLINE_S: Final = 120.0
CONNACK, PUBLISH, PUBACK, SUBACK = 2, 3, 4, 9

OnMessage = Callable[["Peer", bytes, memoryview], None]


class Peer(asyncio.Protocol):
    """One client. `on_message` is given each topic and payload; the payload ends with the call.

    `retained` says then whether the broker had kept the message.
    """

    def __init__(
        self, on_message: OnMessage | None = None, on_lost: Callable[[Peer], None] | None = None
    ) -> None:
        self._on_message = on_message
        self._on_lost = on_lost
        self._buffer = bytearray()
        self._need = 2  # bytes until there may be a whole packet
        self._waiting: asyncio.Future[int] | None = None
        self._packet_id = 0
        self._transport: asyncio.Transport
        self.acked: Callable[[int], None] = lambda _packet_id: None
        self.is_lost = True  # not there yet
        self.retained = False

    async def connect(
        self,
        port: int,
        name: str,
        *,
        tls: ssl.SSLContext | None = None,
        keepalive_s: int = 60,
        will: tuple[str, bytes] | None = None,
        source: str | None = None,
    ) -> None:
        """Connect with a clean session, from the address `source`. Raises `OSError`."""
        await asyncio.get_running_loop().create_connection(
            lambda: self, "127.0.0.1", port, ssl=tls,
            server_hostname="localhost" if tls else None,
            local_addr=(source, 0) if source else None,
        )  # fmt: skip
        flags = 2 | (0x2C if will else 0)
        body = text("MQTT") + bytes([4, flags]) + keepalive_s.to_bytes(2, "big") + text(name)
        if will:
            body += text(will[0]) + len(will[1]).to_bytes(2, "big") + will[1]
        if await self._answer(packet(0x10, body)) != 0:
            raise ConnectionError(f"{name}: the broker refuses the connection")

    async def subscribe(self, filters: Sequence[tuple[str, int]]) -> None:
        """Subscribe to (filter, QoS) pairs. Raises `OSError` or `TimeoutError` when that fails."""
        body = b"\0\1" + b"".join(text(one) + bytes([qos]) for one, qos in filters)
        if await self._answer(packet(0x82, body)) >= 0x80:
            raise ConnectionError("the broker refuses a subscription")

    def publish(self, topic: str, payload: bytes, qos: int = 0, *, retain: bool = False) -> None:
        """Publish; at QoS 1 `acked` is told of the packet's id."""
        head = text(topic)
        if qos:
            self._packet_id = self._packet_id % 65_535 + 1
            head += self._packet_id.to_bytes(2, "big")
        first = bytes([0x30 | qos << 1 | retain])
        self._transport.writelines((first, _length(len(head) + len(payload)), head, payload))

    def ping(self) -> None:
        """Show the broker that somebody is there."""
        self._transport.write(b"\xc0\0")

    def close(self) -> None:
        """Say goodbye and close."""
        if not self.is_lost:
            self._transport.write(b"\xe0\0")
            self._transport.close()

    async def _answer(self, packet: bytes) -> int:
        if self.is_lost:
            raise ConnectionResetError("the broker has closed the connection")
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(packet)
        async with asyncio.timeout(DEADLINE_S):
            return await self._waiting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self.is_lost = False

    def connection_lost(self, _error: Exception | None) -> None:
        """Have whoever waits know."""
        self.is_lost = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionResetError("the broker closed the connection"))
        if self._on_lost is not None:
            self._on_lost(self)

    def data_received(self, data: bytes) -> None:
        """Take the packets that are whole."""
        buffer = self._buffer
        buffer += data
        if len(buffer) < self._need:
            return
        at = 0
        with memoryview(buffer) as view:
            while True:
                found = _cut(view, at)
                if isinstance(found, int):
                    self._need = found
                    break
                begin, end = found
                self._take(view[at], view[begin:end])
                at = end
        del buffer[:at]

    def _take(self, first: int, body: memoryview) -> None:
        kind = first >> 4
        if kind == PUBLISH:
            at = 2 + int.from_bytes(body[:2], "big")
            topic = bytes(body[2:at])
            if first & 6:
                self._transport.write(b"\x40\x02" + body[at : at + 2])
                at += 2
            self.retained = bool(first & 1)
            if self._on_message is not None:
                self._on_message(self, topic, body[at:])
        elif kind == PUBACK:
            self.acked(int.from_bytes(body[:2], "big"))
        elif kind in {CONNACK, SUBACK} and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(max(body[2:]) if kind == SUBACK else body[1])


def _cut(view: memoryview, at: int) -> tuple[int, int] | int:
    """Return where the body of the packet at `at` begins and ends, or how much it wants."""
    size, shift, begin = 0, 0, at + 1
    while True:
        if begin >= len(view):
            return begin - at + 1
        byte = view[begin]
        begin += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if begin + size > len(view):
        return begin - at + size
    return begin, begin + size


def _length(size: int) -> bytes:
    digits = bytearray()
    while True:
        size, digit = divmod(size, 128)
        digits.append(digit | (0x80 if size else 0))
        if not size:
            return bytes(digits)
