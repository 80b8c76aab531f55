"""A client link whose events a test can wait for."""

from __future__ import annotations

import queue
import time
from typing import Any

from broker.client.link import Link, LinkSettings
from broker.protocol.link_events import Disconnected, LinkEvent

DEADLINE_S = 60.0


class Ear:
    """A link, not started, and what it hears."""

    def __init__(self, settings: LinkSettings, will: Any = None) -> None:
        self.events: queue.Queue[LinkEvent] = queue.Queue()
        self.link = Link(settings, self.events.put, will)

    def event(self) -> LinkEvent:
        return self.events.get(timeout=DEADLINE_S)

    def next(self, kind: type[Any]) -> Any:
        """The next event of a kind; events of other kinds before it are passed over."""
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            event = self.events.get(timeout=max(0.0, deadline_s - time.monotonic()))
            if isinstance(event, kind):
                return event

    def refused(self) -> str:
        event = self.event()
        assert isinstance(event, Disconnected)
        return str(event)
