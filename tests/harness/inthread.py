"""A broker on an event loop in a thread, so that a test can look into it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from amqtt.broker import Broker

DEADLINE_S = 60.0


class InThread:
    """A broker that runs while a test looks on."""

    def __init__(self, make: Callable[[], Broker]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.broker: Any = self.call(self._start(make))
        self.port: int = self.broker.port

    async def _start(self, make: Callable[[], Broker]) -> Broker:
        broker = make()
        await broker.start()
        return broker

    def call(self, coroutine: Any) -> Any:
        """Run a coroutine on the broker's loop and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEADLINE_S)

    def stop(self) -> None:
        self.call(self.broker.shutdown())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()
