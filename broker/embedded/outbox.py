"""What waits to be sent to one client, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.session import OutgoingApplicationMessage

from broker.embedded.settings import ServerSettings


class Outbox:
    """The messages of one client that are not sent yet, or not acknowledged.

    Replaces: amqtt's queue of tasks is everybody's and without limit, and lets go of its head
    alone, so that one subscriber that does not read keeps the payloads of everybody's later
    messages in memory.
    """

    def __init__(
        self, handler: BrokerProtocolHandler, settings: ServerSettings, on_slow: Callable[[], None]
    ) -> None:
        self._handler = handler
        self._settings = settings
        self._on_slow = on_slow
        self._sending: set[asyncio.Task[OutgoingApplicationMessage]] = set()
        self._room = asyncio.Event()
        self._room.set()
        self.unsent_bytes = 0

    def send(self, topic: str, data: bytes | bytearray, qos: int, *, retain: bool = False) -> None:
        """Send a message in turn, or drop it when too much waits already."""
        limits = self._settings
        full = self.unsent_bytes + len(data) > limits.max_unsent_bytes
        if full or len(self._sending) >= limits.max_unsent:
            self._on_slow()
            return
        self.unsent_bytes += len(data)
        task = asyncio.ensure_future(self._handler.mqtt_publish(topic, data, qos, retain=retain))
        self._sending.add(task)
        self._follow_room()

        def sent(done: asyncio.Task[Any]) -> None:
            self._sending.discard(done)
            if not done.cancelled():
                done.exception()  # looked at, or asyncio complains: a client that went away
            self.unsent_bytes -= len(data)
            self._follow_room()

        task.add_done_callback(sent)

    async def room(self) -> None:
        """Wait until a good half is free again; `close` ends the wait with the task that waits."""
        await self._room.wait()

    def close(self) -> None:
        """Let go of everything."""
        for task in self._sending:
            task.cancel()

    def _follow_room(self) -> None:
        bytes_left = self._settings.max_unsent_bytes - 2 * self.unsent_bytes
        messages_left = self._settings.max_unsent - 2 * len(self._sending)
        if min(bytes_left, messages_left) < 0:
            self._room.clear()
        else:
            self._room.set()
