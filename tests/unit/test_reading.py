"""The client reads what comes, however it is cut; a paho that works otherwise fails here."""

from __future__ import annotations

import itertools
import queue
import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from paho.mqtt.enums import CallbackAPIVersion

from broker.client.paho_packets import PacketClient
from broker.client.paho_reading import LARGE_BYTES, MAX_BYTES, READ_BYTES, ReadingClient
from broker.protocol.events import Incoming
from broker.protocol.messages import MAX_CHUNK_BYTES
from tests.harness.rawmqtt import packet

DEADLINE_S = 60.0
CONNACK, PINGRESP = b"\x20\x02\x00\x00", b"\xd0\x00"
SIZES = (
    0, 1, 100, 126, 127, 128, 16_370, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1,
    3 * LARGE_BYTES, READ_BYTES - 1, READ_BYTES, READ_BYTES + 1, 300_000,
)  # fmt: skip


def publish(topic: bytes, payload: bytes, number: int = 0, *, retain: bool = False) -> bytes:
    """PUBLISH, at QoS 1 if it has a number."""
    rest = number.to_bytes(2, "big") if number else b""
    first = 0x30 | (0x02 if number else 0) | retain
    return packet(first, len(topic).to_bytes(2, "big") + topic + rest + payload)


class Wire:
    """A client, and the broker's end of its connection."""

    def __init__(self, client: ReadingClient) -> None:
        self.came: queue.Queue[Incoming] = queue.Queue()
        self.client = client
        client.on_messages = self._put
        with socket.create_server(("127.0.0.1", 0)) as server:
            client.connect("127.0.0.1", server.getsockname()[1])
            self.end, _ = server.accept()
        self.end.settimeout(DEADLINE_S)
        self.end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.loop_start()
        self.end.recv(1000)
        self.end.sendall(CONNACK)

    def _put(self, messages: list[Incoming]) -> None:
        for message in messages:
            self.came.put(message)

    def next(self) -> Incoming:
        return self.came.get(timeout=DEADLINE_S)

    def acknowledged(self, count: int) -> list[int]:
        """The numbers of the next messages that the client acknowledges."""
        data = b""
        while len(data) < 4 * count:
            data += self.end.recv(4 * count - len(data))
        assert data[::4] + data[1::4] == b"\x40" * count + b"\x02" * count
        return [int.from_bytes(data[at : at + 2], "big") for at in range(2, len(data), 4)]

    def close(self) -> None:
        self.end.close()
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def wire() -> Iterator[Wire]:
    """A connection that has been taken."""
    made = Wire(PacketClient(CallbackAPIVersion.VERSION2, reconnect_on_failure=False))
    yield made
    made.close()


def bytewise(stream: bytes) -> Iterator[bytes]:
    """A byte at a time."""
    return (stream[at : at + 1] for at in range(len(stream)))


def at_once(stream: bytes) -> Iterator[bytes]:
    """In as few pieces as the system makes of it."""
    yield stream


def at_random(stream: bytes) -> Iterator[bytes]:
    """Pieces of a byte to 256 KiB."""
    rng, at = random.Random(3), 0
    while at < len(stream):
        size = int(2 ** (rng.random() * 18))
        yield stream[at : at + size]
        at += size


@pytest.mark.parametrize("cut", [bytewise, at_once, at_random])
def test_messages_are_whole_in_order_and_acknowledged_however_they_come(
    wire: Wire, cut: Any
) -> None:
    """Small and large ones, at QoS 0 and 1, with other packets between them."""
    rng, numbers = random.Random(1), itertools.count(1)
    sizes = [size for size in SIZES if cut is not bytewise or size < 200] * 3
    sent, stream, numbered = [], b"", []
    for place, size in enumerate(sizes):
        topic, payload, retain = f"fleet/tür-{place}", rng.randbytes(size), place % 2 == 0
        number = next(numbers) if place % 3 else 0
        stream += publish(topic.encode(), payload, number, retain=retain)
        sent.append(Incoming(topic, payload, retain))
        numbered += [number] * bool(number)
        if place % 4 == 0:
            stream += PINGRESP
    for piece in cut(stream):
        wire.end.sendall(piece)
    assert [wire.next() for _ in sent] == sent
    assert wire.acknowledged(len(numbered)) == numbered


@pytest.mark.parametrize(
    "senseless",
    [
        packet(0x30, b"\x00\x09topic"),
        packet(0x30, b"\x00\x00payload"),
        packet(0x30, b"\x00"),
        packet(0x32, b"\x00\x05topic\x01"),
        packet(0x34, b"\x00\x05topic\x00\x01payload"),
        packet(0x36, b"\x00\x05topic\x00\x01payload"),
        b"\x30\xff\xff\xff\xff\x01",
    ],
)
def test_what_is_no_packet_ends_the_connection_and_nothing_of_it_is_taken(
    wire: Wire, senseless: bytes
) -> None:
    """What came before it is."""
    wire.end.sendall(publish(b"a", b"before") + senseless + publish(b"a", b"behind"))
    assert wire.next() == Incoming("a", b"before")
    while wire.end.recv(1000):
        pass
    wire.close()
    assert wire.came.empty()


def test_a_topic_that_is_no_text_is_none_of_ours(wire: Wire) -> None:
    """It ends nothing."""
    wire.end.sendall(publish(b"\xff\xfe", b"x", 7) + publish(b"a", b"y"))
    assert [wire.next(), wire.next()] == [Incoming("", b"x"), Incoming("a", b"y")]
    assert wire.acknowledged(1) == [7]


def test_an_end_of_the_connection_is_told(wire: Wire) -> None:
    """In the middle of a packet, too."""
    told: queue.Queue[Any] = queue.Queue()
    wire.client.on_disconnect = lambda *_: told.put(True)
    wire.end.sendall(publish(b"a", b"x" * 100_000)[:50_000])
    wire.end.close()
    assert told.get(timeout=DEADLINE_S)
    assert wire.came.empty()


def test_of_what_is_too_large_to_be_ours_the_beginning_is_kept(wire: Wire) -> None:
    """It is acknowledged, and what follows is read: it is no reason to lose the connection."""
    stream = publish(b"a", b"x" * (MAX_BYTES + 300_000), 7) + publish(b"a", b"y", 8)
    for piece in at_random(stream):
        wire.end.sendall(piece)
    large = wire.next()
    assert MAX_CHUNK_BYTES < len(large.payload) < MAX_BYTES
    assert wire.next() == Incoming("a", b"y")
    assert wire.acknowledged(2) == [7, 8]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_whatever_ends_its_thread_ends_the_connection_and_is_told(wire: Wire) -> None:
    """Or nobody would connect again."""
    told: queue.Queue[Any] = queue.Queue()
    wire.client.on_disconnect = lambda *_: told.put(True)

    def fails(_: list[Incoming]) -> None:
        raise MemoryError

    wire.client.on_messages = fails
    thread = wire.client._thread
    assert thread is not None
    wire.end.sendall(publish(b"a", b"x"))
    assert told.get(timeout=DEADLINE_S)
    assert wire.end.recv(1000) == b""
    thread.join(DEADLINE_S)
