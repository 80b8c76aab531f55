"""The coordinator's loop: what it does with its mailbox when it is to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.access import PEOPLE, open_access
from broker.machine import system_clock
from broker.messages import AskStatus, encode
from broker.settings import BrokerSettings
from broker.systemd import Notifier
from broker.topics import Topics
from broker.wire import Incoming
from coordinator.service import LAST_GOOD, Service
from coordinator.settings import CoordinatorSettings, HomeAssistantSettings
from tests.harness.brokers import free_port


def a_service(settings: CoordinatorSettings) -> Service:
    """A coordinator whose broker is not there."""
    broker = BrokerSettings(url=f"mqtt://127.0.0.1:{free_port()}")
    access = open_access(broker, PEOPLE, system_clock().wall_s)
    home = HomeAssistantSettings()
    return Service(settings, broker, access, {}, Notifier.take({}, 1), home)


def test_who_asks_for_its_end_does_not_wait_for_the_backlog(tmp_path: Path) -> None:
    """It ends after what it is at; the rest would be asked again of the next coordinator."""
    service = a_service(CoordinatorSettings(state=tmp_path))
    topic = Topics().operator_request("operator:local/cli")
    for number in range(5_000):
        service.mailbox.put(Incoming(topic, encode(AskStatus(id=str(number)))))
    service.stop()
    service.run(lambda: None)
    assert service.mailbox.unread()["local"] > 1_000


def test_a_manifest_that_cannot_be_kept_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its copy is for a restart with a faulty one: without room for it, that is said."""
    (tmp_path / "state" / LAST_GOOD).mkdir(parents=True)
    manifest = tmp_path / "plan.toml"
    manifest.write_text(
        'schema_version = 1\n[[jobs]]\nname = "one"\nmodel = "gbt"\nmode = "oracle"\n'
    )
    service = a_service(CoordinatorSettings(state=tmp_path / "state", manifest=manifest))
    assert LAST_GOOD in caplog.text
    assert "a restart will not find this manifest" in caplog.text
    service.stop()
    service.run(lambda: None)
