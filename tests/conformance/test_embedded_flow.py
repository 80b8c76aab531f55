"""How messages pass through the embedded broker: all of them, in order, and nobody held up."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from typing import Any

import pytest

from broker.embedded import EmbeddedBroker, Reason, ServerSettings
from tests.harness.inthread import InThread
from tests.harness.rawmqtt import CONNACK, connect, heard, joined, packet, publish, subscribe, wire
from tests.harness.waiting import wait_until

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

    async def send_and_end() -> bool:
        channel = ours.broker.router.connected["sender"].channel
        channel.data_received(b"".join(publish("a", b"%d" % number) for number in range(1_000)))
        channel.eof_received()
        await asyncio.sleep(0)
        return "sender" in ours.broker.router.connected

    assert ours.call(send_and_end()), "nobody else had a turn"
    assert [watcher.next()[1] for _ in range(1_000)] == [b"%d" % one for one in range(1_000)]
    wait_until(lambda: "sender" not in ours.broker.router.connected, "it is there still")


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
        wait_until(lambda: ours.broker.router.sessions["late"].unsent_bytes > 1_000_000, "it reads")
        _pings(late, 3)
        assert Reason.SILENT not in ours.broker.refused
        size = 60 * len(publish("bulk", b"z" * 200_000))
        assert len(heard(late, size)) == size, "it is not told the rest"
        assert heard(late, 24) == b"\xd0\0" * 12


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
