"""What asyncio knows of one connection: its bytes, as they come, and whether it takes more.

Replaces: amqtt reads by `asyncio.StreamReader`: each field of a packet is awaited, each read wakes
a task, and all bytes are copied through a buffer of 64 KiB, with reading paused and resumed as it
fills. Bulk of 256 KiB cost 2.2 s of processor time a GB; without that, and without amqtt's packets,
it costs 0.9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, cast

EARLY_BYTES: Final = 64 * 1024  # that wait to be read, of somebody who is not let in yet

Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Line(asyncio.StreamReaderProtocol):
    """A connection: read piece by piece at first, then each piece goes where `follow` says.

    It is asyncio's own protocol of streams but for what comes in: those know how to start TLS,
    to wait until something is sent, and to end.
    """

    def __init__(self, connected: Connected, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(asyncio.StreamReader(loop=loop), connected, loop)
        self._socket: asyncio.Transport
        self._early = bytearray()
        self._is_over = False
        self._waiter: asyncio.Future[None] | None = None
        self._on_data: Callable[[bytes], None] | None = None
        self._on_end: Callable[[], None] | None = None
        self.on_room: Callable[[], None] = _nothing
        self.is_full = False  # more waits to be sent than should

    async def read(self) -> bytes:
        """Return what has come, nothing at the end. One may wait at a time."""
        while not self._early and not self._is_over:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._take_early()

    def follow(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """From now on, call `on_data` with what comes, and `on_end` once at the end."""
        self._on_data, self._on_end = on_data, on_end
        if self._early:
            on_data(self._take_early())
        if self._is_over:
            self._end()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._socket = cast("asyncio.Transport", transport)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Take a piece."""
        if self._on_data is not None:
            self._on_data(data)
            return
        self._early += data
        if len(self._early) > EARLY_BYTES:
            self._socket.pause_reading()  # until somebody reads: not everybody may come in
        self._wake()

    def eof_received(self) -> bool:
        """Take it for the end of the connection: nobody needs half of one."""
        super().eof_received()
        self._end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever follows."""
        super().connection_lost(exc)
        self._end()

    def pause_writing(self) -> None:
        """Take note that the client does not read as fast as it is sent."""
        super().pause_writing()
        self.is_full = True

    def resume_writing(self) -> None:
        """Take note that it has caught up."""
        super().resume_writing()
        self.is_full = False
        self.on_room()

    def _take_early(self) -> bytes:
        data = bytes(self._early)
        self._early.clear()
        self._socket.resume_reading()
        return data

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _end(self) -> None:
        self._is_over = True
        self._wake()
        on_end, self._on_end = self._on_end, None
        self._on_data, self.on_room = _nowhere, _nothing  # or they keep each other in memory
        if on_end is not None:
            on_end()


def _nothing() -> None:
    pass


def _nowhere(_data: bytes) -> None:
    pass
