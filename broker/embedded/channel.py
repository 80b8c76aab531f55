"""One connection to a client: packets in, bytes out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from broker.embedded.packets import LENGTH_BYTES
from broker.embedded.reason_codes import Code, PacketError

READ_BYTES: Final = 256 * 1024
CLOSE_TIMEOUT_S: Final = 1.0
FULL_BYTES: Final = 64 * 1024  # that wait to be sent, to a client that does not keep up


class LeftError(Exception):
    """The client ended the connection before it said anything: nothing was refused."""


class Channel:
    """MQTT over TCP or TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = bytearray()
        self._missing_bytes = 0
        self.is_closed = False
        self.limit_of: Callable[[int], int] = lambda _kind: 0  # the largest body of a packet type
        self.on_received: Callable[[int], object] = lambda _size_bytes: None

    @property
    def unsent_bytes(self) -> int:
        """How much waits to be sent."""
        return self._writer.transport.get_write_buffer_size()

    @property
    def unread_bytes(self) -> int:
        """How much has come that is no whole packet yet."""
        return len(self._buffer)

    async def open(self) -> None:
        """Do what comes before MQTT: a websocket has a handshake."""

    async def packet(self) -> tuple[int, bytes] | None:
        """Return the first byte and the body of the next packet, none at the end.

        Raises `PacketError`, before the body has come, for one that may not be.
        """
        while (found := self._cut()) is None:
            data = await self.receive()
            if not data:
                return None
            self._buffer += data
            self.on_received(len(data))
        return found

    async def receive(self) -> bytes:
        """Return the bytes of MQTT that come next, nothing at the end. Raises `OSError`."""
        return await self._reader.read(READ_BYTES)

    def _cut(self) -> tuple[int, bytes] | None:
        """Take the first packet out of the buffer, if all of it has come."""
        buffer = self._buffer
        if len(buffer) < max(2, self._missing_bytes):
            return None
        size_bytes = 0
        for place in range(LENGTH_BYTES):
            if place + 1 >= len(buffer):
                return None
            byte = buffer[place + 1]
            size_bytes |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                break
        else:
            raise PacketError("a length of more than four bytes")
        first, begin = buffer[0], place + 2
        if size_bytes > (limit_bytes := self.limit_of(first >> 4)):
            detail = f"a packet of {size_bytes} bytes, at most {limit_bytes} are taken"
            raise PacketError(detail, Code.TOO_LARGE)
        if len(buffer) < begin + size_bytes:
            self._missing_bytes = begin + size_bytes
            return None
        with memoryview(buffer) as view:
            body = bytes(view[begin : begin + size_bytes])
        del buffer[: begin + size_bytes]
        self._missing_bytes = 0
        return first, body

    def write(self, data: bytes) -> None:
        """Send this after all that was sent before."""
        if not self.is_closed:
            self._writer.write(data)

    async def drain(self) -> None:
        """Wait until the client has nearly caught up. Raises `OSError` when it is gone."""
        await self._writer.drain()

    def cut(self) -> None:
        """End the connection at once; what is not sent is lost."""
        self.is_closed = True
        self._writer.transport.abort()

    async def close(self) -> None:
        """Send what is left and end the connection, at the latest after a second."""
        if self.is_closed:
            return
        self.is_closed = True
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._writer.wait_closed()
        self.cut()
