"""A small coordinator, which answers operators as a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from broker.client.link import Link, LinkSettings
from broker.client.mailbox import Mailbox, feed
from broker.protocol.link_events import Connected, Incoming, LinkEvent, Outgoing
from broker.protocol.messages import GRANT, OPERATOR_REQUEST, decode
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topics
from broker.system.address import parse_addresses
from broker.system.machine import new_id

DEADLINE_S = 60.0
Answer = Callable[[Any, str], list[Outgoing]]


class Peer:
    """Answers operators as told: `answer(request, client)` gives what is published."""

    def __init__(self, url: str, topics: Topics, answer: Answer) -> None:
        self.requests: list[Any] = []
        self._topics = topics
        self._answer = answer
        self._mailbox: Mailbox[LinkEvent | None] = Mailbox()
        self._link = Link(
            LinkSettings(parse_addresses(url), f"peer-{new_id()[:12]}", topics.for_coordinator()),
            feed(self._mailbox, topics)
        )  # fmt: skip
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._link.start()
        self._thread.start()
        assert self._ready.wait(DEADLINE_S)

    def stop(self) -> None:
        self._mailbox.put(None)
        self._thread.join(DEADLINE_S)
        self._link.stop()

    def _run(self) -> None:
        while True:
            for event in self._mailbox.take(None):
                if event is None:
                    return
                if isinstance(event, Connected):
                    self._ready.set()
                if isinstance(event, Incoming):
                    self._on_message(event)

    def _on_message(self, event: Incoming) -> None:
        topic = self._topics.parse(event.topic)
        match topic.kind:
            case Kind.OPERATOR_REQUEST:
                request: Any = decode(OPERATOR_REQUEST, event.payload)
            case Kind.DOWNLOAD_GRANT:
                request = decode(GRANT, event.payload)
            case _:
                return  # its own chunks: a coordinator's filters match them as well
        self.requests.append(request)
        for message in self._answer(request, topic.host):
            self._link.publish(message)
