"""What comes in one piece from a broker: every packet is heard, though the socket has no more."""

from __future__ import annotations

import socket

import pytest

from broker.client.connection import LinkSettings
from broker.protocol.link_events import Connected, Incoming
from broker.system.address import Address
from tests.harness.ear import DEADLINE_S, Ear
from tests.harness.rawmqtt import CONNACK, publish

LARGE = 200_000  # more than is read at once


@pytest.mark.parametrize("sizes", [(1,) * 20, (1, LARGE, 1, LARGE, 1)])
def test_packets_that_come_together_are_all_heard(sizes: tuple[int, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE_S)
        port = server.getsockname()[1]
        ear = Ear(LinkSettings([Address("127.0.0.1", port)], "fleet-pi", ()))
        ear.link.start()
        connection, _ = server.accept()
        with connection:
            connection.settimeout(DEADLINE_S)
            assert connection.recv(1000)
            packets = [publish(f"fleet/pi/{n}", b"x" * size) for n, size in enumerate(sizes)]
            connection.sendall(CONNACK + b"\0" + b"".join(packets))
            heard = {ear.event() for _ in range(len(sizes) + 1)}
        ear.link.stop([])
    assert [one for one in heard if isinstance(one, Connected)]
    topics = {one.topic: len(one.payload) for one in heard if isinstance(one, Incoming)}
    assert [topics[f"fleet/pi/{n}"] for n in range(len(sizes))] == list(sizes)
