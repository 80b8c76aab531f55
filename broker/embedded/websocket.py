"""MQTT in websockets (MQTT 3.1.1, 6; RFC 6455): the same bytes, in binary frames.

Replaces: amqtt's listener takes no message of more than 1 MiB, keeps everything in memory until all
of it is read, and is asked by any page that somebody has open in a browser.
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from websockets.exceptions import InvalidState, PayloadTooBig, WebSocketException
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from broker.embedded.line import Line
from broker.embedded.reason_codes import MalformedPacketError, OversizePacketError
from broker.embedded.settings import ServerSettings
from broker.embedded.wire import LeftError, Wire

PACKET_HEADER_BYTES: Final = 5


class HandshakeError(Exception):
    """Somebody does not open a websocket, or may not."""


class WebsocketWire(Wire):
    """What goes out, each write in a frame of its own."""

    def __init__(self, line: Line, writer: asyncio.StreamWriter, settings: ServerSettings) -> None:
        super().__init__(line, writer)
        self._settings = settings
        self.protocol = ServerProtocol(
            subprotocols=[Subprotocol("mqtt")],
            max_size=settings.max_packet_bytes + PACKET_HEADER_BYTES,
        )

    async def open(self) -> None:
        """Answer the request that opens the websocket.

        Raises `HandshakeError` when it is none, or comes from a page that may not ask, and
        `LeftError` when nothing comes at all.
        """
        protocol = self.protocol
        request: object = None
        data, size_bytes, limit_bytes = b"", 0, self._settings.max_connect_bytes
        while request is None:
            heard, data = bool(data), await self.line.read()
            if not data and not heard:
                raise LeftError
            size_bytes += len(data)
            protocol.receive_data(data)
            if not data or protocol.handshake_exc is not None:
                raise HandshakeError("no request for a websocket")
            request = next(iter(protocol.events_received()), None)
            if request is None and size_bytes > limit_bytes:
                raise HandshakeError(f"a request of more than {limit_bytes} bytes")
        if not isinstance(request, Request):
            raise HandshakeError("no request for a websocket")
        origin = request.headers.get("Origin")
        if origin is not None and not may_ask(origin, request.headers.get("Host"), self._settings):
            protocol.send_response(protocol.reject(403, "this page may not; see --origin\n"))
            self.flush()
            raise HandshakeError(f"a page of {origin!r} may not: see --origin")
        protocol.send_response(protocol.accept(request))
        self.flush()
        if protocol.handshake_exc is not None:
            raise HandshakeError(str(protocol.handshake_exc))

    async def read(self) -> bytes:
        """Return what has come, nothing at the end: for what comes before a client is let in.

        Raises `OversizePacketError` for a frame that is larger than a CONNECT may be.
        """
        limit_bytes = self._settings.max_connect_bytes + PACKET_HEADER_BYTES
        while data := await self.line.read():
            if found := self.decode(data):
                return found
            if self.has_ended:
                break
            # Not by `max_size`: what a client sends in one with its CONNECT may be larger.
            if self.undecoded_bytes > limit_bytes:
                raise OversizePacketError(
                    f"a frame of more than {limit_bytes} bytes before the CONNECT"
                )
        return b""

    @property
    def undecoded_bytes(self) -> int:
        """See `Wire`."""
        return len(self.protocol.reader.buffer)

    @property
    def has_ended(self) -> bool:
        """Whether the other side has said that nothing more comes."""
        return self.protocol.state is not State.OPEN

    def decode(self, data: bytes) -> bytes:
        """Return what the binary frames in `data` bear.

        Raises `OversizePacketError` and `MalformedPacketError` for a frame that may not be.
        """
        protocol, found = self.protocol, []
        protocol.receive_data(data)
        for event in protocol.events_received():
            if not isinstance(event, Frame):
                continue
            if event.opcode is Opcode.TEXT:
                protocol.fail(CloseCode.UNSUPPORTED_DATA)
                self.flush()
                raise MalformedPacketError("text in a websocket")
            if event.opcode in {Opcode.BINARY, Opcode.CONT}:
                found.append(bytes(event.data))
        if self.line.is_full and not self.has_ended:
            # Whoever does not read is sent no more answers to pings (RFC 6455, 5.5.3).
            protocol.data_to_send()
        self.flush()  # answers to pings and to the end
        fault = protocol.parser_exc
        if isinstance(fault, PayloadTooBig):
            raise OversizePacketError(f"a frame of a websocket: {fault}")
        if isinstance(fault, WebSocketException | InvalidState):
            raise MalformedPacketError(f"a frame of a websocket: {fault}")
        return b"".join(found)

    def write(self, data: bytes | memoryview) -> None:
        """Send what MQTT has to say."""
        if self.protocol.state is State.OPEN:
            self.protocol.send_binary(bytes(data))
            self.flush()

    def flush(self) -> None:
        """Send what the protocol has to say."""
        for part in self.protocol.data_to_send():
            if part:  # an empty one would end our side
                super().write(part)

    async def close(self) -> None:
        """Say so, send what is left, and end the connection."""
        if not self.is_closed and self.protocol.state is State.OPEN:
            self.protocol.send_close(CloseCode.NORMAL_CLOSURE)
            self.flush()
        await super().close()


def may_ask(origin: str, host: str | None, settings: ServerSettings) -> bool:
    """Tell whether a page of `origin` may open a websocket, in the browser of whoever looks at it.

    A browser would show the certificate of its user for any page. Those that were named may, and
    those of this very address: with TLS the browser has checked its name, without it the name
    has to be this machine's, or any page could call its own server by it (DNS rebinding).
    """
    if origin in settings.origins:
        return True
    parts = urlsplit(origin)
    if settings.identity is None:
        return _is_loopback(parts.hostname) and _is_loopback(urlsplit(f"//{host}").hostname)
    return parts.scheme == "https" and host is not None and parts.netloc == host


def _is_loopback(name: str | None) -> bool:
    try:
        return name == "localhost" or ip_address(name or "").is_loopback
    except ValueError:
        return False
