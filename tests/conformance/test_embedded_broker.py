"""Each mend of the embedded broker, and that stock amqtt still needs it.

When a `stock` test fails, upstream has mended the fault: drop the override.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.metadata
import socket
import sys
import threading
import tracemalloc
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from amqtt.broker import Broker
from amqtt.session import OutgoingApplicationMessage

from broker.embedded import EmbeddedBroker, Reason, ServerSettings
from broker.embedded.packets import Message
from broker.errors import LinkError
from tests.harness.inthread import InThread
from tests.harness.rawmqtt import publish

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

DEADLINE_S = 60.0
Connect = Callable[..., Any]  # the fixture `client`
STOCK = {
    "listeners": {"default": {"type": "tcp", "bind": "127.0.0.1:0", "max_connections": 1000}},
    "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {}},
}


@pytest.fixture(autouse=True)
def swept() -> Iterator[None]:
    """Stock amqtt leaves sockets to the garbage collector: not to that of a later test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def stock() -> Iterator[InThread]:
    """Stock amqtt."""
    made = InThread(lambda: Broker(STOCK))
    yield made
    made.stop()


@pytest.fixture
def ours() -> Iterator[InThread]:
    """The embedded broker."""
    made = InThread(lambda: EmbeddedBroker(ServerSettings(port=0)))
    yield made
    made.stop()


class Loud(bytes):
    """A payload that notices when somebody formats it."""

    formatted = 0

    def __repr__(self) -> str:
        type(self).formatted += 1
        return "loud"


def test_stock_formats_every_payload(stock: InThread) -> None:
    """For a debug line that nobody reads: four fifths of its bulk rate."""
    Loud.formatted = 0

    async def broadcast() -> None:
        await stock.broker._broadcast_queue.put(
            {"session": None, "topic": "a/b", "data": Loud(b"x" * 1000)}
        )
        await stock.broker._run_broadcast(deque())

    stock.broker._broadcast_task.get_loop().call_soon_threadsafe(
        stock.broker._broadcast_task.cancel
    )
    stock.call(broadcast())
    assert Loud.formatted


def test_ours_formats_no_payload(ours: InThread, client: Connect) -> None:
    """Payloads pass untouched, to be sent or kept."""
    Loud.formatted = 0
    one = client(ours.port, "one")
    one.subscribe("a/b")

    async def broadcast() -> None:
        message = Message("a/b", Loud(b"x" * 1000))
        ours.broker.send(message)
        ours.broker.retain("", message)

    ours.call(broadcast())
    assert one.next() == ("a/b", b"x" * 1000)
    assert not Loud.formatted


def _leak(connect: Connect, port: int) -> Any:
    """Somebody retains, somebody subscribes; return a third who did not subscribe to it."""
    first, second = connect(port, "first"), connect(port, "second")
    first.publish("secret/a", b"s3cret", retain=True)
    second.subscribe("secret/#")
    assert second.next() == ("secret/a", b"s3cret")
    return connect(port, "third")


def test_stock_sends_retained_messages_to_who_did_not_subscribe(
    stock: InThread, client: Connect
) -> None:
    """Every client that connects is sent what matches anybody's filters."""
    assert _leak(client, stock.port).next() == ("secret/a", b"s3cret")


def test_ours_sends_retained_messages_to_subscribers_alone(ours: InThread, client: Connect) -> None:
    """The first thing that a newcomer gets is what it asked for."""
    third = _leak(client, ours.port)
    third.subscribe("third/own")
    third.publish("third/own", b"mine")
    assert third.next() == ("third/own", b"mine")
    assert third.got.empty()


def _failed_connects(running: InThread, hub: Any) -> int:
    """Of eighty at once, each with a filter of its own, in a fleet whose births are retained."""
    hub.subscribe("own/#")
    for number in range(80):
        hub.publish(f"own/{number}", b"birth", retain=True)
        assert hub.next()
    failed: list[int] = []

    def one(number: int) -> None:
        with socket.create_connection(("127.0.0.1", running.port), DEADLINE_S) as wire:
            name = b"c%03d" % number
            wire.sendall(b"\x10\x10\0\4MQTT\4\2\0\x3c\0\4" + name)
            wire.sendall(b"\x82\x0d\0\1\0\x08own/" + name + b"\1")
            seen = b""
            while b"\x90\x03\0\1" not in seen:
                try:
                    got = wire.recv(65_536)
                except OSError:
                    got = b""
                if not got:
                    failed.append(number)
                    return
                seen += got

    threads = [threading.Thread(target=one, args=(number,)) for number in range(80)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return len(failed)


def test_stock_fails_connects_while_others_subscribe(stock: InThread, client: Connect) -> None:
    """Its loop over the filters does not bear that one is added meanwhile."""
    assert any(
        _failed_connects(stock, client(stock.port, f"hub-{attempt}")) for attempt in range(5)
    )


def test_ours_takes_eighty_connects_at_once(ours: InThread, client: Connect) -> None:
    """Each connects, subscribes and is answered, all at the same time."""
    assert not _failed_connects(ours, client(ours.port, "hub"))


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


def test_stock_takes_a_packet_of_any_size(stock: InThread, client: Connect) -> None:
    """It has no limit to set; a packet of 256 MB would be read into memory as well."""
    one = client(stock.port, "one")
    one.subscribe("big")
    one.publish("big", b"x" * 2_000_000)
    assert one.next() == ("big", b"x" * 2_000_000)


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


def _messages() -> int:
    gc.collect()
    return sum(type(one) is OutgoingApplicationMessage for one in gc.get_objects())


def test_stock_keeps_everything_for_a_subscriber_that_does_not_read(
    stock: InThread, client: Connect
) -> None:
    """One that is stuck makes the broker grow until the machine is full."""
    assert _kept_for_sleepy(stock, client, _messages) > 80


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
    assert running.broker._clients["sleepy"].outbox.unsent_bytes <= 4_000_000
    assert kept_bytes < 8_000_000
    assert running.broker.refused[Reason.SLOW] > 50
    running.stop()


def _hung_stops(running: InThread, connect: Connect) -> int:
    """Stop eight clients whose PING comes just then, each a step of the loop earlier."""

    async def stop(name: str, steps: int) -> bool:
        handler = running.broker._sessions[name][1]
        handler.reader._reader.feed_data(b"\xc0\0")
        for _ in range(steps):
            await asyncio.sleep(0)
        try:
            await asyncio.wait_for(running.broker._stop_handler(handler), 1.0)
        except TimeoutError:
            handler.reader._reader.feed_eof()  # or the broker could not be stopped, either
            return True
        return False

    for steps in range(8):
        connect(running.port, f"c{steps}")
    return sum(running.call(stop(f"c{steps}", steps)) for steps in range(8))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="asyncio loses no cancel any more")
def test_stock_hangs_when_a_client_is_stopped_as_its_packet_arrives(
    stock: InThread, client: Connect
) -> None:
    """Its shutdown would wait until that client is silent for its whole keepalive."""
    assert _hung_stops(stock, client)


def test_ours_stops_a_client_whatever_arrives(ours: InThread, client: Connect) -> None:
    """Whenever a packet comes, the client is stopped at once; nothing is done for it any more."""

    async def stop(name: str, steps: int) -> None:
        one = ours.broker._clients[name]
        one.arrival.wire.line.data_received(publish("a", b"x") * 10_000)
        for _ in range(steps):
            await asyncio.sleep(0)
        one.arrival.wire.cut()
        passed_on = ours.broker._meter.messages
        await asyncio.wait_for(one.ended.wait(), DEADLINE_S)
        assert ours.broker._meter.messages == passed_on

    for steps in range(8):
        client(ours.port, f"c{steps}")
    for steps in range(8):
        ours.call(stop(f"c{steps}", steps))
    assert not ours.broker.sessions


def test_another_amqtt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The overrides are made for one version; the error says which to install."""
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "0.99.0")

    async def make() -> None:
        EmbeddedBroker(ServerSettings(port=0))

    with pytest.raises(LinkError, match=r"pip install amqtt==0\.12\.1"):
        asyncio.run(make())
