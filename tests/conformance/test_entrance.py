"""A coordinator's way into its fleet on each broker: before it serves it says and hears nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.client.link import LinkSettings
from broker.protocol.link_events import Incoming, LinkEvent, Outgoing
from broker.protocol.messages import Holder, encode
from broker.protocol.topics import Topics
from broker.system.address import parse_addresses
from coordinator.service.succession import Entrance
from tests.harness.ear import Ear


class Coming:
    """A coordinator on its way: its link, its entrance, and a clock of the test's."""

    def __init__(self, settings: LinkSettings, topics: Topics) -> None:
        self.topics, self.now_s = topics, 0.0
        self.ear = Ear(settings)
        self.link = self.ear.link
        self.holder = Holder(ledger="mine", installation="it", machine="here", instance="i1")
        filters = topics.for_coordinator()
        self.entrance = Entrance(self.link, topics, self.holder, filters)

    def hears(self) -> LinkEvent:
        event = self.ear.event()
        self.entrance.admits(event, self.now_s)
        return event


@pytest.fixture
def coming(any_broker: Any, topic_root: str) -> Iterator[Coming]:
    topics = Topics(topic_root)
    name, filters = topics.client_id("coordinator"), topics.before_coordinator()
    settings = LinkSettings(parse_addresses(any_broker.url), name, filters, backoff_base_s=0.1)
    made = Coming(settings, topics)
    made.link.start()
    yield made
    made.link.stop()


def test_nothing_is_said_or_heard_before_it_serves(
    any_broker: Any, coming: Coming, client: Callable[..., Any]
) -> None:
    topics = coming.topics
    witness = client(any_broker.port, "witness")
    witness.subscribe(f"{topics.root}/coordinator/+")
    client(any_broker.port, "host").publish(topics.status("pi"), b"early", retain=True)
    summary = Outgoing(topics.summary(), b"said")
    assert not coming.entrance.publish(summary)
    heard = []
    while not (coming.entrance.serves and topics.status("pi") in heard):
        event = coming.hears()
        heard.append(event.topic if isinstance(event, Incoming) else "")
        if not coming.entrance.serves:
            assert not coming.entrance.publish(summary)
    assert heard.index(topics.status("pi")) > heard.index(topics.echo("coordinator"))
    assert coming.entrance.publish(summary)
    said = [witness.next() for _ in range(3)]
    assert said[0][0] == topics.echo("coordinator")
    assert said[1:] == [(topics.holder(), encode(coming.holder)), (topics.summary(), b"said")]
