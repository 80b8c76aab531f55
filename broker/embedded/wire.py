"""Our end of one connection, as the broker uses it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, cast

from broker.embedded.line import Line

CLOSE_TIMEOUT_S: Final = 1.0


class LeftError(Exception):
    """Somebody has ended the connection before they said anything: nothing was refused."""


class Wire:
    """Sends, tells what comes, and ends; the bytes are MQTT's."""

    def __init__(self, line: Line, writer: asyncio.StreamWriter) -> None:
        self.line = line
        self._writer = writer
        self._transport = cast("asyncio.Transport", writer.transport)
        self.is_closed = False
        self.is_resting = False
        self.is_cut = False

    @property
    def unsent_bytes(self) -> int:
        """How much waits to be sent."""
        return self._transport.get_write_buffer_size()

    @property
    def undecoded_bytes(self) -> int:
        """How much has come of what `decode` cannot return yet."""
        return 0

    def secured(self) -> None:
        """Take note that TLS has begun."""
        self._transport = cast("asyncio.Transport", self._writer.transport)

    async def open(self) -> None:
        """Do what comes before MQTT: nothing, but see websockets."""

    async def read(self) -> bytes:
        """Return what has come, nothing at the end."""
        while data := await self.line.read():
            if found := self.decode(data):
                return found
            if self.has_ended:
                break
        return b""

    @property
    def has_ended(self) -> bool:
        """Whether the other side has said, in what was decoded, that nothing more comes."""
        return False

    def decode(self, data: bytes) -> bytes:
        """Return the bytes of MQTT in what has come."""
        return data

    def write(self, data: bytes | memoryview) -> None:
        """Send this after all that was sent before."""
        if not self.is_closed:
            self._transport.write(data)

    async def drained(self) -> None:
        """Wait until the client has nearly caught up. Raises `OSError` when it is gone."""
        await self._writer.drain()

    def rest(self) -> None:
        """Read nothing for now."""
        self.is_resting = True
        self._transport.pause_reading()

    def go_on(self) -> None:
        """Read again."""
        self.is_resting = False
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def cut(self) -> None:
        """End the connection at once; what is not sent is lost."""
        self.is_closed = self.is_cut = True
        self._transport.abort()

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
