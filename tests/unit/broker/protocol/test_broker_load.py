"""What the embedded broker says of its load, and what is made of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.protocol import messages as m
from broker.protocol.broker_load import strain
from broker.protocol.link_events import Connected, Incoming
from broker.protocol.messages import BrokerLoad, encode
from coordinator.cli.status import _draw
from tests.harness.coordinator import Fleet

FINE: dict[str, Any] = {
    "clients": 500, "max_clients": 10_000, "messages_s": 40.0, "bytes_s": 12_000.0, "busy": 0.02,
    "lag_p99_s": 0.01,
}  # fmt: skip


def test_a_broker_with_little_to_do_is_not_talked_about() -> None:
    assert strain(BrokerLoad(**FINE)) is None


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ({"busy": 0.7, "bytes_s": 2.5e8}, ["70% of a core", "40 messages and 250.0 MB a second"]),
        ({"clients": 8_000}, ["8,000 of at most 10,000 connections"]),
        ({"busy": 0.9, "clients": 9_999}, ["90% of a core", "9,999 of at most"]),
    ],
)
def test_who_nears_the_limit_is_sent_to_mosquitto(load: dict[str, Any], words: list[str]) -> None:
    found = strain(BrokerLoad(**FINE | load))
    assert found is not None
    assert all(word in found.what for word in words)
    assert found.what.startswith("near its limit")
    assert "mosquitto" in found.remedy


def test_a_machine_that_is_busy_with_other_things_is_told_apart() -> None:
    """Another broker would be as late there; it, or the machine, may have been stopped, too."""
    found = strain(BrokerLoad(**FINE | {"lag_p99_s": 0.8}))
    assert found is not None
    assert "late by up to 0.8 s, though it takes 2% of a core" in found.what
    assert "mosquitto" not in found.remedy
    assert found.remedy.startswith("something holds it up: see what else its machine does")
    assert "was stopped for a while" in found.remedy


def test_the_coordinator_says_so_in_its_status() -> None:
    fleet = Fleet()
    assert fleet.asks(m.AskStatus(id="a")).data["broker"]["load"] is None
    busy = BrokerLoad(**FINE | {"busy": 0.8})
    fleet.handle(Incoming(fleet.topics.broker_load(), encode(busy), retained=True))
    load = fleet.asks(m.AskStatus(id="b")).data["broker"]["load"]
    assert load["clients"] == 500
    assert load["busy"] == 0.8
    fleet.handle(Connected("another"))
    assert fleet.asks(m.AskStatus(id="c")).data["broker"]["load"] is None


def test_status_shows_it_to_people() -> None:
    fleet = Fleet()
    shown = {}
    for busy in (0.1, 0.8):
        load = BrokerLoad(**FINE | {"busy": busy})
        fleet.handle(Incoming(fleet.topics.broker_load(), encode(load), retained=True))
        data = fleet.asks(m.AskStatus(id=f"{busy}")).data
        shown[busy] = " ".join(str(getattr(line, "_text", line)) for line in _draw((data, None)))
    assert "near its limit" not in shown[0.1]
    assert "near its limit: it takes 80% of a core" in shown[0.8]


@pytest.mark.parametrize("name", ["clients", "max_clients"])
def test_a_load_in_numbers_that_no_float_holds_is_garbage(name: str) -> None:
    """It is retained, and `fleet status` reckons with it."""
    fleet = Fleet()
    said = json.dumps({"v": 1} | FINE | {name: 10**400}).encode()
    fleet.handle(Incoming(fleet.topics.broker_load(), said))
    assert fleet.asks(m.AskStatus(id="s")).data["broker"]["load"] is None
