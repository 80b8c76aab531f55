"""Who may stay connected: a connection that says nothing makes room, and ends after some seconds.

Uvicorn alone would wait for ever for a first request, and answer everybody that it is busy.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from broker.address import machine_of

MAX_CONNECTIONS: Final = 500
MAX_OF_ONE: Final = 100  # address; an open page has some six of them
REQUEST_S: Final = 10.0  # for a request, its body too, from the connection or the last one on


class Guest(HttpToolsProtocol):
    """A browser's connection, until it becomes a websocket, whose silence ends by its own pings."""

    def __init__(self, *, most_of_one: int, **of_uvicorn: Any) -> None:
        """Prepare; `most_of_one` is how many connections an address may have."""
        super().__init__(**of_uvicorn)
        self._most_of_one = most_of_one
        self._begun_s = self.loop.time()
        self._served: object = None  # the request that was the last one when we looked
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it in; if there are too many, the one that is silent longest has to go."""
        super().connection_made(transport)
        machine = _machine(self)
        same = [one for one in self.connections if _machine(one) == machine]
        if len(same) > self._most_of_one:
            self._make_room(same)
        elif len(self.connections) >= MAX_CONNECTIONS:
            self._make_room(self.connections)
        self._timer = self.loop.call_later(REQUEST_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def is_silent(self) -> bool:
        """Tell whether it is the browser's turn to say something."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _make_room(self, crowd: Any) -> None:
        silent = [one for one in crowd if isinstance(one, Guest) and one.is_silent()]
        others = [one for one in silent if one is not self]
        leaves = min(others, key=lambda one: one._begun_s, default=self)  # noqa: SLF001
        self.connections.discard(leaves)  # now: its end is told later
        leaves.transport.abort()

    def _look(self) -> None:
        if self not in self.connections:
            return  # it is a websocket now
        if self.is_silent() and self._served is self.cycle:
            self.transport.abort()
            return
        self._served = self.cycle
        self._timer = self.loop.call_later(REQUEST_S, self._look)


def _machine(connection: Any) -> str:
    peer = connection.transport.get_extra_info("peername")
    return machine_of(str(peer[0])) if peer else ""
