"""A fleet of the test's own on the shared broker, and who plays its coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.protocol.link_events import Outgoing
from broker.protocol.messages import OperatorResponse, encode
from broker.protocol.topics import Topics
from broker.system.settings import BrokerSettings
from tests.harness.peer import Answer, Peer


@pytest.fixture
def topics(topic_root: str) -> Topics:
    """The topics of the test's own fleet."""
    return Topics(topic_root)


@pytest.fixture
def where(embedded_broker: Any, topics: Topics) -> BrokerSettings:
    return BrokerSettings(url=embedded_broker.url, topic_root=topics.root)


@pytest.fixture
def at(where: BrokerSettings) -> list[str]:
    """The options of the command line that name that fleet."""
    return ["--broker", where.url, "--root", where.topic_root]


@pytest.fixture
def peer(where: BrokerSettings, topics: Topics) -> Iterator[Callable[[Answer], Peer]]:
    """`peer(answer)`: a coordinator that answers so."""
    made: list[Peer] = []

    def start(answer: Answer) -> Peer:
        made.append(Peer(where.url, topics, answer))
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.stop()


@pytest.fixture
def says(topics: Topics) -> Callable[..., Outgoing]:
    """`says(client, id, data)`: a response."""

    def make(client: str, request_id: str, data: Any = None, **more: Any) -> Outgoing:
        response = OperatorResponse(id=request_id, ok=not more, data=data, **more)
        return Outgoing(topics.operator_response(client), encode(response))

    return make
