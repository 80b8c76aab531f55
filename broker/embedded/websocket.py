"""MQTT in websockets (MQTT 3.1.1, 6; RFC 6455): the same bytes, in binary frames."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final
from urllib.parse import urlsplit

from websockets.exceptions import InvalidState, PayloadTooBig, WebSocketException
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from broker.embedded.channel import FULL_BYTES, Channel, LeftError
from broker.embedded.limits import Reason
from broker.embedded.packets import Code, RefusedError
from broker.embedded.settings import ServerSettings
from broker.system.address import is_loopback

PACKET_HEADER_BYTES: Final = 5


class WebsocketChannel(Channel):
    """MQTT in websockets, each write in a frame of its own."""

    def __init__(
        self, serve: Callable[[Any], Coroutine[Any, Any, None]], settings: ServerSettings
    ) -> None:
        super().__init__(serve)
        self._settings = settings
        self._incoming = bytearray()  # frames that are not decoded
        self._has_packet = False
        self._protocol = ServerProtocol(
            subprotocols=[Subprotocol("mqtt")],
            max_size=settings.max_packet_bytes + PACKET_HEADER_BYTES,
        )

    def data_received(self, data: bytes | memoryview) -> None:
        """See `Channel`."""
        self._incoming += data
        self._note(len(data), len(self._incoming))

    @property
    def unread_bytes(self) -> int:
        """See `Channel`; frames that are not whole count, too."""
        return super().unread_bytes + len(self._incoming) + len(self._protocol.reader.buffer)

    async def open(self) -> None:
        """Answer the request that opens the websocket. Raises `RefusedError` and `LeftError`."""
        protocol, request = self._protocol, await self._read_request()
        origin = request.headers.get("Origin")
        if origin is not None and not may_ask(origin, request.headers.get("Host"), self._settings):
            protocol.send_response(protocol.reject(403, "this page may not; see --origin\n"))
            self._flush()
            raise _refused(f"a page of {origin!r} may not: see --origin")
        protocol.send_response(protocol.accept(request))
        self._flush()
        if protocol.handshake_exc is not None:
            raise _refused(str(protocol.handshake_exc))

    async def _read_request(self) -> Request:
        protocol, size_bytes = self._protocol, 0
        while data := await self._receive():
            size_bytes += len(data)
            protocol.receive_data(data)
            if protocol.handshake_exc is not None:
                break
            for request in protocol.events_received():
                if isinstance(request, Request):
                    return request
            if size_bytes > self._settings.max_connect_bytes:
                raise _refused(f"a request of more than {self._settings.max_connect_bytes} bytes")
        if not size_bytes:
            raise LeftError
        raise _refused("no request for a websocket")

    async def _receive(self) -> bytes:
        """Return what comes from the network, nothing at the end."""
        while not self._incoming and await self.arrival():
            pass
        data = bytes(self._incoming)
        self._incoming.clear()
        return data

    async def packet(self) -> tuple[int, bytes] | None:
        """See `Channel`."""
        found = await super().packet()
        self._has_packet = True
        return found

    async def fill(self) -> bool:
        """See `Channel`."""
        # Frames that came with the request for the websocket are in the protocol already.
        has_more = self._decode(b"")
        limit_bytes = self._settings.max_connect_bytes + PACKET_HEADER_BYTES
        while not has_more and self._protocol.state is State.OPEN:
            if not (data := await self._receive()):
                return False
            has_more = self._decode(data)
            # A client may send a large frame with its CONNECT, but not a CONNECT in a large frame.
            if not has_more and not self._has_packet and self.unread_bytes > limit_bytes:
                detail = f"a frame of more than {limit_bytes} bytes before the CONNECT"
                raise RefusedError(detail, Code.TOO_LARGE)
        return has_more

    def _decode(self, data: bytes) -> bool:
        """Take MQTT out of the frames in `data`; tell whether there was any."""
        protocol, before = self._protocol, len(self._buffer)
        if data:
            protocol.receive_data(data)
        for event in protocol.events_received():
            if not isinstance(event, Frame):
                continue
            if event.opcode is Opcode.TEXT:
                protocol.fail(CloseCode.UNSUPPORTED_DATA)
                self._flush()
                raise RefusedError("text in a websocket")
            if event.opcode in {Opcode.BINARY, Opcode.CONT}:
                self._buffer += event.data
        if self.unsent_bytes > FULL_BYTES and protocol.state is State.OPEN:
            # A client that does not read gets no more answers to pings (RFC 6455, 5.5.3).
            protocol.data_to_send()
        self._flush()  # answers to pings and to the end
        fault = protocol.parser_exc
        if isinstance(fault, PayloadTooBig):
            raise RefusedError(f"a frame of a websocket: {fault}", Code.TOO_LARGE)
        if isinstance(fault, WebSocketException | InvalidState):
            raise RefusedError(f"a frame of a websocket: {fault}")
        return len(self._buffer) > before

    def write(self, data: bytes) -> None:
        """See `Channel`."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_binary(data)
            self._flush()

    def _flush(self) -> None:
        for part in self._protocol.data_to_send():
            if part:  # an empty one would end our side
                super().write(part)

    async def close(self) -> None:
        """See `Channel`."""
        if not self.is_closed and self._protocol.state is State.OPEN:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
            self._flush()
        await super().close()


def may_ask(origin: str, host: str | None, settings: ServerSettings) -> bool:
    """Tell whether a page of `origin` may open a websocket from a browser.

    A browser shows the certificate of its user for any page. Allowed are the named origins and
    those of this very address. With TLS the browser has checked its name; without, the name has to
    be this machine's, or any page could call its own server by it (DNS rebinding).
    """
    if origin in settings.origins:
        return True
    parts = urlsplit(origin)
    if settings.identity is None:
        names = (parts.hostname, urlsplit(f"//{host}").hostname)
        return all(is_loopback(name or "") for name in names)
    return parts.scheme == "https" and host is not None and parts.netloc == host


def _refused(detail: str) -> RefusedError:
    return RefusedError(detail, reason=Reason.WEBSOCKET)
