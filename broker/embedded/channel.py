"""One connection to a client: packets in, bytes out."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Final

from broker.embedded.packets import Code, RefusedError, read_number

READ_BYTES: Final = 256 * 1024  # as asyncio reads at once; reading pauses while more is unhandled
CLOSE_TIMEOUT_S: Final = 1.0
FULL_BYTES: Final = 64 * 1024  # unsent, of a client that does not keep up


class LeftError(Exception):
    """The client ended the connection before it said anything: nothing was refused."""


_READ: Final = memoryview(bytearray(READ_BYTES))  # of all: each copies its bytes at once


class Channel(asyncio.BufferedProtocol):
    """MQTT over TCP or TLS. `serve` handles the connection from its begin."""

    def __init__(self, serve: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        self._serve = serve
        self._task: asyncio.Task[None] | None = None
        self.transport: Any = None  # typeshed has no transport of both directions for TLS
        self.address = "nowhere"
        self._buffer = bytearray()  # MQTT that is not handled
        self._needed_bytes = 2
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._lost = asyncio.Event()
        self._is_over = False
        self.is_closed = False
        self.limit_of: Callable[[int], int] = lambda _kind: 0  # the largest body of a packet type
        self.on_received: Callable[[int], object] = lambda _size_bytes: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; TLS may still take over the transport."""
        self.transport = transport
        self.address = str((transport.get_extra_info("peername") or ("nowhere",))[0])
        self._writable.set()
        self._task = asyncio.get_running_loop().create_task(self._serve(self))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's
        """Return where the next bytes are to be written."""
        return _READ

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that were written there."""
        self.data_received(_READ[:nbytes])

    def data_received(self, data: bytes | memoryview) -> None:
        """Keep bytes until `packet` takes them."""
        self._buffer += data
        self._note(len(data), len(self._buffer))

    def _note(self, size_bytes: int, unhandled_bytes: int) -> None:
        self._arrived.set()
        if unhandled_bytes > max(READ_BYTES, self._needed_bytes):
            self.transport.pause_reading()
        self.on_received(size_bytes)

    def eof_received(self) -> bool:
        """Handle the rest; what is plain can be answered until then."""
        self._is_over = True
        self._arrived.set()
        return self.transport.get_extra_info("sslcontext") is None

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """Wake whoever waits."""
        self._is_over = True
        for event in (self._arrived, self._writable, self._lost):
            event.set()

    def pause_writing(self) -> None:
        """The client does not keep up."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The client has nearly caught up."""
        self._writable.set()

    @property
    def unsent_bytes(self) -> int:
        """How much waits to be sent."""
        size_bytes: int = self.transport.get_write_buffer_size()
        return size_bytes

    @property
    def unread_bytes(self) -> int:
        """How much has come that is not handled yet."""
        return len(self._buffer)

    async def start_tls(self, context: ssl.SSLContext) -> bytes | None:
        """Speak TLS from here on; return the client's certificate. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        self.transport = await loop.start_tls(self.transport, self, context, server_side=True)
        tls = self.transport.get_extra_info("ssl_object")
        certificate: bytes | None = tls.getpeercert(binary_form=True)
        return certificate

    async def open(self) -> None:
        """Do what comes before MQTT: a websocket has a handshake."""

    async def packet(self) -> tuple[int, bytes] | None:
        """Return the first byte and the body of the next packet, none at the end.

        Raises `RefusedError`, before the body has come, for one that may not be.
        """
        while (found := self._cut()) is None:
            if not await self.fill():
                return None
        return found

    async def fill(self) -> bool:
        """Wait for more bytes of MQTT; false at the end."""
        return await self.arrival()

    async def arrival(self) -> bool:
        """Wait for more bytes from the network; false at the end."""
        if self._is_over:
            return False
        self._arrived.clear()
        self.transport.resume_reading()
        await self._arrived.wait()
        return True

    def _cut(self) -> tuple[int, bytes] | None:
        """Take the first packet out of the buffer, if all of it has come."""
        buffer = self._buffer
        if len(buffer) < self._needed_bytes:
            return None
        size_bytes, begin = read_number(buffer, 1)
        if not begin:
            return None
        first, end = buffer[0], begin + size_bytes
        if size_bytes > (limit_bytes := self.limit_of(first >> 4)):
            detail = f"a packet of {size_bytes} bytes, at most {limit_bytes} are taken"
            raise RefusedError(detail, Code.TOO_LARGE)
        if len(buffer) < end:
            self._needed_bytes = end
            return None
        with memoryview(buffer) as view:
            body = bytes(view[begin:end])
        del buffer[:end]
        self._needed_bytes = 2
        return first, body

    def write(self, data: bytes) -> None:
        """Send this after all that was sent before."""
        if not self.is_closed:
            self.transport.write(data)

    async def drain(self) -> None:
        """Wait until the client has nearly caught up. Raises `OSError` when it is gone."""
        await self._writable.wait()
        if self._lost.is_set():
            raise ConnectionResetError

    def cut(self) -> None:
        """End the connection at once; what is not sent is lost."""
        self.is_closed = True
        self.transport.abort()

    async def close(self) -> None:
        """Send what is left and end the connection, at the latest after a second."""
        if self.is_closed:
            return
        self.is_closed = True
        self.transport.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._lost.wait()
        self.cut()
