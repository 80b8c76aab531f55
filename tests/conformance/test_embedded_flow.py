"""How messages pass through the embedded broker: all of them, in order, and nobody held up."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from broker.client.access import COORDINATOR
from broker.doctor.reach import check_broker, check_session
from broker.embedded import EmbeddedBroker, Reason, ServerSettings
from broker.embedded import broker as embedded
from broker.protocol.messages import BROKER_LOAD, BrokerLoad, decode, encode
from broker.system.settings import BrokerSettings
from tests.harness.inthread import InThread, until
from tests.harness.rawmqtt import CONNACK, connect, heard, joined, packet, publish, subscribe, wire

# paho leaves sockets open.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
Make = Callable[..., Any]  # the fixtures `client`, `new_network` and `new_embedded`
ACCEPTED = CONNACK + b"\0"
PING, GOODBYE = b"\xc0\0", b"\xe0\0"


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_all_that_was_sent_before_the_end_arrives_in_order(network: Any, tls: bool) -> None:
    running = network.running if tls else InThread(lambda: EmbeddedBroker(ServerSettings(port=0)))
    watcher = network.client("operator:alice") if tls else network._connect(running.port, "watcher")
    topic = "fleet/pi-4/heartbeat"
    watcher.subscribe(topic, 1)
    said = [b"%d" % number * (60_000 if number % 50 == 0 else 1) for number in range(1, 1_001)]
    context = network.tls("pi-4") if tls else None
    with joined(running.port, context, first=connect("pi-4")) as connection:
        connection.sendall(b"".join(publish(topic, payload) for payload in said) + GOODBYE)
        assert heard(connection, 1) == b""
    assert [watcher.next()[1] for _ in said] == said
    if not tls:
        running.stop()


def test_what_came_with_the_end_of_the_connection_counts(ours: InThread, client: Make) -> None:
    watcher = client(ours.port, "watcher")
    watcher.subscribe("a")
    client(ours.port, "sender")

    async def send_and_end() -> int:
        channel = ours.broker.router.connected["sender"].channel
        channel.data_received(b"".join(publish("a", b"%d" % number) for number in range(1_000)))
        channel.eof_received()
        await asyncio.sleep(0)
        return int(ours.broker.router.meter.messages)

    assert ours.call(send_and_end()) < 1_000, "nobody else had a turn"
    assert [watcher.next()[1] for _ in range(1_000)] == [b"%d" % one for one in range(1_000)]
    until(lambda: "sender" not in ours.broker.router.connected, "it is there still")


def test_a_message_comes_at_the_lower_qos_and_once(ours: InThread, client: Make) -> None:
    one = client(ours.port, "one")
    one.subscribe("a/#", 0)
    one.subscribe("a/#", 1)  # replaces the first (MQTT 3.1.1, 3.8.4-3)
    one.subscribe("a/+", 0)
    for qos in (0, 1):
        one.publish("a/b", b"%d" % qos, qos)
        got = one.got.get(timeout=60)
        assert (got.payload, got.qos) == (b"%d" % qos, qos)
    assert one.got.empty()


def _pings(connection: socket.socket, seconds: int) -> None:
    """Ping four times a second, and read nothing."""
    for _ in range(4 * seconds):
        connection.sendall(PING)
        select.select([], [], [], 0.25)


@pytest.mark.slow
def test_a_client_that_pings_and_does_not_keep_up_is_not_silent(
    ours: InThread, client: Make
) -> None:
    """A coordinator on a busy machine reads late; its connection is worth more than that."""
    with wire(ours.port) as late:
        late.sendall(connect("late", keepalive_s=1) + subscribe("bulk"))
        assert heard(late, 9)[:4] == ACCEPTED
        sender = client(ours.port, "sender")
        for _ in range(60):
            sender.publish("bulk", b"z" * 200_000)
        until(lambda: ours.broker.router.sessions["late"].unsent_bytes > 1_000_000, "it reads")
        _pings(late, 3)
        assert Reason.SILENT not in ours.broker.refused
        size = 60 * len(publish("bulk", b"z" * 200_000))
        assert len(heard(late, size)) == size, "it is not told the rest"
        assert heard(late, 24) == b"\xd0\0" * 12


def test_what_it_has_to_do_is_told(
    ours: InThread, client: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "LOAD_EVERY_S", 0.5)
    with wire(ours.port) as connection:
        connection.sendall(connect("x") + publish("a", b"xyz") * 500 + PING)
        assert heard(connection, 6) == ACCEPTED + b"\xd0\0"
        until(lambda: len(ours.broker.router.retained) > 0, "nothing is told")
        watcher = client(ours.port, "watcher")
        watcher.subscribe("fleet/broker/load")
        load = decode(BROKER_LOAD, watcher.next()[1])
    assert load.clients >= 1
    assert load.max_clients == ServerSettings().max_connections
    assert load.messages_s > 0
    assert load.bytes_s == pytest.approx(3 * load.messages_s, rel=0.5)


@pytest.mark.parametrize("session", [True, False], ids=["before the start", "while it runs"])
def test_the_doctor_says_when_the_broker_is_at_its_limit(
    ours: InThread, client: Make, session: bool
) -> None:
    settings = BrokerSettings.load(None, {"url": f"mqtt://127.0.0.1:{ours.port}"})

    def lines() -> list[str]:
        beside = None if session else lambda _: iter(())
        check = partial(check_session, settings=settings, name="coordinator", beside=beside)
        found = check_broker(settings, COORDINATOR, check)
        return [finding.line() for finding in found if finding.check == "load"]

    assert lines() == []
    load = BrokerLoad(
        clients=9_000, max_clients=10_000, messages_s=1.0, bytes_s=1.0, busy=0.1, lag_p99_s=0.0
    )
    client(ours.port, "one").publish("fleet/broker/load", encode(load), retain=True)
    until(lambda: len(ours.broker.router.retained) == 1, "it is not retained")
    (line,) = lines()
    assert line.startswith("warn  load")
    assert "9,000 of at most 10,000 connections; move to mosquitto" in line


def test_a_flood_of_small_packets_lets_others_have_their_turn(ours: InThread, client: Make) -> None:
    other = client(ours.port, "other")
    other.subscribe("o")
    with joined(ours.port, first=connect("flood")) as flood:
        flood.sendall(PING * 30_000)
        other.publish("o", b"fine")
        assert other.next() == ("o", b"fine")
        assert heard(flood, 60_000) == b"\xd0\0" * 30_000
        flood.sendall(packet(0x10, b""))  # a second CONNECT: its end
        assert heard(flood, 1) == b""
