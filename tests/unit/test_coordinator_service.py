"""The coordinator's loop: what it does with its mailbox when it is to end."""

from __future__ import annotations

from pathlib import Path

from broker.access import PEOPLE, open_access
from broker.machine import system_clock
from broker.messages import AskStatus, encode
from broker.settings import BrokerSettings
from broker.systemd import Notifier
from broker.topics import Topics
from broker.wire import Incoming
from coordinator.service import Service
from coordinator.settings import CoordinatorSettings, HomeAssistantSettings
from tests.harness.brokers import free_port


def test_who_asks_for_its_end_does_not_wait_for_the_backlog(tmp_path: Path) -> None:
    """It ends after what it is at; the rest would be asked again of the next coordinator."""
    broker = BrokerSettings(url=f"mqtt://127.0.0.1:{free_port()}")
    service = Service(
        CoordinatorSettings(state=tmp_path),
        broker,
        open_access(broker, PEOPLE, system_clock().wall_s),
        {},
        Notifier.take({}, 1),
        HomeAssistantSettings(),
    )
    topic = Topics().operator_request("operator:local/cli")
    for number in range(5_000):
        service.mailbox.put(Incoming(topic, encode(AskStatus(id=str(number)))))
    service.stop()
    service.run(lambda: None)
    assert service.mailbox.unread()["local"] > 1_000
