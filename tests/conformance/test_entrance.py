"""A coordinator's way into its fleet on each broker: before it serves it says and hears nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.client.link import LinkSettings
from broker.protocol.events import Incoming, Outgoing
from broker.protocol.messages import Holder, encode
from broker.protocol.topics import Topics
from broker.system.address import parse_addresses
from coordinator.service.succession import Entrance
from tests.harness.ear import Ear

DEADLINE_S = 60.0


class Coming:
    """A link, its entrance, and what comes past that."""

    def __init__(self, url: str, root: str) -> None:
        self.topics = Topics(root)
        name, filters = self.topics.client_id("coordinator"), self.topics.before_coordinator()
        self.ear = Ear(LinkSettings(parse_addresses(url), name, filters, backoff_base_s=0.1))
        self.link = self.ear.link
        self.holder = Holder(ledger="mine", installation="it", machine="here", instance="i1")
        filters = self.topics.for_coordinator()
        self.entrance = Entrance(self.link, self.topics, self.holder, filters)
        self.link.start()

    def step(self) -> str:
        """Take the next event; return what it was."""
        event = self.ear.event()
        self.entrance.admits(event, time.monotonic())
        return event.topic if isinstance(event, Incoming) else type(event).__name__


@pytest.fixture
def coming(any_broker: Any, topic_root: str) -> Iterator[Coming]:
    """One that connects."""
    made = Coming(any_broker.url, topic_root)
    yield made
    made.link.stop()


def test_nothing_is_said_or_heard_before_it_serves(
    any_broker: Any, coming: Coming, client: Callable[..., Any]
) -> None:
    """Then the first word is who it is, and what is retained of hosts comes."""
    topics = coming.topics
    witness = client(any_broker.port, "witness")
    witness.subscribe(f"{topics.root}/coordinator/+")
    client(any_broker.port, "host").publish(topics.status("pi"), b"early", retain=True)
    summary = Outgoing(topics.summary(), b"said")
    assert not coming.entrance.publish(summary)
    heard = []
    while not (coming.entrance.serves and topics.status("pi") in heard):
        heard.append(coming.step())
        if not coming.entrance.serves:
            assert not coming.entrance.publish(summary)
    assert heard.index(topics.status("pi")) > heard.index(topics.echo("coordinator"))
    assert coming.entrance.publish(summary)
    said = [witness.next() for _ in range(3)]
    assert said[0][0] == topics.echo("coordinator")
    assert said[1:] == [(topics.holder(), encode(coming.holder)), (topics.summary(), b"said")]
