"""Each mend of the embedded broker, and that stock amqtt still needs it.

When a `stock` test fails, upstream has mended the fault: drop the override.
"""

from __future__ import annotations

import socket
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.embedded import EmbeddedBroker, Reason, ServerSettings
from tests.harness.inthread import InThread

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

DEADLINE_S = 60.0
Connect = Callable[..., Any]  # the fixture `client`
STOCK = {
    "listeners": {"default": {"type": "tcp", "bind": "127.0.0.1:0", "max_connections": 1000}},
    "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {}},
}


@pytest.fixture
def ours() -> Iterator[InThread]:
    """The embedded broker."""
    made = InThread(lambda: EmbeddedBroker(ServerSettings(port=0)))
    yield made
    made.stop()


def _leak(connect: Connect, port: int) -> Any:
    """Somebody retains, somebody subscribes; return a third who did not subscribe to it."""
    first, second = connect(port, "first"), connect(port, "second")
    first.publish("secret/a", b"s3cret", retain=True)
    second.subscribe("secret/#")
    assert second.next() == ("secret/a", b"s3cret")
    return connect(port, "third")


def test_ours_sends_retained_messages_to_subscribers_alone(ours: InThread, client: Connect) -> None:
    """The first thing that a newcomer gets is what it asked for."""
    third = _leak(client, ours.port)
    third.subscribe("third/own")
    third.publish("third/own", b"mine")
    assert third.next() == ("third/own", b"mine")
    assert third.got.empty()


def test_a_large_packet_read_in_small_pieces_is_refused_too() -> None:
    """A SUBSCRIBE is read filter by filter; its announced length is what counts."""
    running = InThread(lambda: EmbeddedBroker(ServerSettings(port=0, max_packet_bytes=10_000)))
    with socket.create_connection(("127.0.0.1", running.port), DEADLINE_S) as wire:
        wire.sendall(b"\x10\x0d\0\4MQTT\4\2\0\x3c\0\1z")
        assert wire.recv(4) == b"\x20\2\0\0"
        wire.sendall(b"\x82\xa0\x9c\x01")  # 20,000 bytes to come
        assert wire.recv(4) == b""
    assert running.broker.refused == {Reason.OVERSIZE: 1}
    running.stop()


def test_ours_ends_the_connection_of_a_packet_that_is_too_large(
    caplog: pytest.LogCaptureFixture, client: Connect
) -> None:
    """Others do not notice; the broker does not read it, counts it, and tells of the first."""
    running = InThread(lambda: EmbeddedBroker(ServerSettings(port=0, max_packet_bytes=100_000)))
    rude, polite = client(running.port, "rude"), client(running.port, "polite")
    rude.paho.publish("big", b"x" * 200_000, 0)
    assert rude.gone.wait(DEADLINE_S)
    assert running.broker.refused == {Reason.OVERSIZE: 1}
    assert "packet of 200005 bytes, at most 100000" in caplog.text
    polite.subscribe("polite/own")
    polite.publish("polite/own", b"y" * 90_000)
    assert polite.next() == ("polite/own", b"y" * 90_000)
    running.stop()


def _kept_for_sleepy(running: InThread, connect: Connect, kept: Callable[[], int]) -> int:
    """Of 100 messages of 200 kB, what is `kept` when one of two does not read them."""
    before = kept()
    sleepy, awake = connect(running.port, "sleepy"), connect(running.port, "awake")
    sleepy.subscribe("bulk", 0)
    awake.subscribe("bulk", 0)
    sleepy.paho.loop_stop()  # its socket is open, and nobody reads it
    sender = connect(running.port, "sender")
    for _ in range(100):
        sender.publish("bulk", b"z" * 200_000)
        assert awake.next()[0] == "bulk", "whoever reads gets everything"
    return kept() - before


def test_ours_bounds_what_waits_for_a_subscriber_that_does_not_read(
    client: Connect,
) -> None:
    """What waits for it stays under the limit, and nothing of the others' is kept with it."""
    running = InThread(lambda: EmbeddedBroker(ServerSettings(port=0, max_unsent_bytes=4_000_000)))
    tracemalloc.start()
    try:
        kept_bytes = _kept_for_sleepy(running, client, lambda: tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert running.broker.router.sessions["sleepy"].unsent_bytes <= 4_000_000
    assert kept_bytes < 8_000_000
    assert running.broker.refused[Reason.SLOW] > 50
    running.stop()
