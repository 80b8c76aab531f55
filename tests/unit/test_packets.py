"""A packet in two pieces is sent as if it were one, wherever the socket breaks off."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from broker.client.paho_packets import GATHERED_BYTES, PacketClient, _Gathered

TOPIC = "fleet/pi/artifact/" + "5a" * 32 + "/chunk/0"


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A socket that takes little at a time, and its other end."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    ours.setblocking(False)
    theirs.settimeout(60.0)
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("size", [GATHERED_BYTES - 1, GATHERED_BYTES, 300_001])
@pytest.mark.parametrize("read", [1, 90, 4096])
def test_what_arrives_is_the_packet(
    ends: tuple[socket.socket, socket.socket], size: int, read: int
) -> None:
    """As paho itself makes it, however little of it the socket takes at once."""
    ours, theirs = ends
    client = PacketClient(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv311)
    client._sock = ours
    payload = random.Random(size).randbytes(size)
    info = client.publish(TOPIC, payload, 0, retain=True)
    arrived = bytearray()
    while not info.is_published():
        arrived += theirs.recv(read if len(arrived) < 2000 else 65_536)
        assert len(arrived) <= 2 * size, "it goes on and on"
        client.loop_write()
    theirs.setblocking(False)
    while len(arrived) < len(payload) + len(TOPIC) + 6:
        arrived += theirs.recv(65_536)
    assert arrived[0] == 0x31
    assert arrived[-size - len(TOPIC) :] == TOPIC.encode() + payload
    assert len(arrived) == size + len(TOPIC) + 6


def test_it_goes_on_from_any_byte() -> None:
    """A socket may take a part of the head alone."""
    head, payload = bytearray(b"head"), b"payload"
    packet = _Gathered(head, payload)
    left = [b"".join(packet[at:]) for at in range(len(packet))]
    assert left == [(head + payload)[at:] for at in range(len(head + payload))]
