"""A coordinator on its way into its fleet: its link, its entrance, and a clock of the test's."""

from __future__ import annotations

from broker.client.link import LinkSettings
from broker.protocol.link_events import LinkEvent
from broker.protocol.messages import Holder
from broker.protocol.topics import Topics
from coordinator.service.succession import Entrance
from tests.harness.ear import Ear


class Coming:
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
