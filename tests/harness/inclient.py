"""An operator's client that asks a core, with no broker between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topic
from coordinator.client.client import OperatorClient
from coordinator.client.contact import NotDone
from tests.harness.coordinator import OPERATOR, Fleet
from tests.harness.shell import Coordinator


class _Client:
    """See the module; `attempts` are what is over."""

    pages, host_pages = OperatorClient.pages, OperatorClient.host_pages
    list_workers = OperatorClient.list_workers

    def __init__(self, fleet: Fleet, attempts: tuple[Any, ...]) -> None:
        self._fleet, self._attempts = fleet, attempts

    def ask(self, request: Any) -> Any:
        if isinstance(request, m.AskAttempts):
            return {"attempts": [*self._attempts], "next": None}
        return self._fleet.asks(request).data


def client_of(fleet: Fleet, *attempts: Any) -> Any:
    return _Client(fleet, attempts)


class Streaming:
    """A client that sends to a coordinator and receives from it; used as a context manager.

    `sent` are the bytes of the chunks; after `most` of them the connection is lost.
    """

    def __init__(self, fleet: Coordinator, most: float = float("inf")) -> None:
        self.fleet, self.most = fleet, most
        self.sent: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """What has come for this connection is lost with it."""
        self.fleet.sent.clear()

    def ask(self, request: Any) -> Any:
        """The data of the answer, once the disk has done its work."""
        answer = self.fleet.asks(request)
        self.fleet.files()
        if not answer.ok:
            raise NotDone(answer.why["code"], answer.data, answer.code, answer.why)
        return answer.data

    def send_chunk(self, index: int, data: bytes) -> None:
        if len(self.sent) >= self.most:
            raise ConnectionError
        self.sent.append(data)
        self.fleet.handle(Incoming(self.fleet.topics.push_chunk(OPERATOR, index), data))
        self.fleet.files()

    def grant(self, message: m.GrantMessage) -> None:
        topic = self.fleet.topics.download_grant(OPERATOR)
        self.fleet.handle(Incoming(topic, m.encode(message)))

    def messages(self, _wait_s: float) -> Iterator[tuple[Topic, bytes]]:
        """Grants, and the only chunk of a small download."""
        self.fleet.waits(0.01)
        self.fleet.files()
        sent, self.fleet.sent = self.fleet.sent, []
        yield from (
            (topic, m.encode(said)) for topic, said in sent if topic.kind is Kind.PUSH_GRANT
        )  # fmt: skip
        yield from ((Topic(Kind.DOWNLOAD_CHUNK, OPERATOR), data) for data in self.fleet.chunks)
        self.fleet.chunks.clear()
