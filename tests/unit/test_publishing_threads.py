"""What several threads publish at once reaches the broker whole, soon, each thread's in order."""

from __future__ import annotations

import collections
import io
import socket
import threading
from typing import Any

from paho.mqtt.enums import CallbackAPIVersion

from broker.client.paho_packets import PacketClient
from broker.protocol.events import Outgoing

CONNACK = b"\x20\x02\x00\x00"
SIZE_BYTES = 90_000  # more than the socket takes at a time
COUNT = 40
THREADS = 3


def frame(stream: socket.SocketIO | io.BytesIO) -> tuple[int, bytes]:
    """Return the type and the body of the next packet."""
    first, length, shift = stream.read(1), 0, 0
    assert first
    while True:
        (byte,) = stream.read(1) or b"\0"
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    body = b""
    while len(body) < length:
        body += stream.read(length - len(body)) or b""
    return first[0] & 0xF0, body


def test_a_socket_that_takes_part_of_a_packet_mixes_nothing() -> None:
    """The rest of a packet goes out before any other, whoever sends."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = PacketClient(CallbackAPIVersion.VERSION2, client_id="many")
        connected = threading.Event()
        client.on_connect = lambda *_: connected.set()
        client.connect("127.0.0.1", server.getsockname()[1])
        sock = client.socket()
        assert isinstance(sock, socket.socket)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        client.loop_start()
        with server.accept()[0] as peer, peer.makefile("rb", buffering=0) as stream:
            peer.settimeout(60.0)
            assert frame(stream)[0] == 0x10
            peer.sendall(CONNACK)
            assert connected.wait(60.0)

            def publish(name: int) -> None:
                for number in range(COUNT):
                    payload = bytes([name, number]) * (SIZE_BYTES // 2)
                    client.send([(1 + name * COUNT + number, Outgoing("t", payload))])

            threads = [threading.Thread(target=publish, args=(n,)) for n in range(THREADS)]
            for thread in threads:
                thread.start()
            heard: dict[int, list[int]] = {n: [] for n in range(THREADS)}
            for _ in range(THREADS * COUNT):
                kind, body = frame(stream)
                assert kind == 0x30
                name, number = body[5:7]
                assert body[5:] == bytes([name, number]) * (SIZE_BYTES // 2)
                heard[name].append(number)
                peer.sendall(b"\x40\x02" + body[3:5])
            for thread in threads:
                thread.join(20.0)
        client.loop_stop()
        assert all(numbers == [*range(COUNT)] for numbers in heard.values())


class SentMeanwhile(collections.deque[Any]):
    """What waits to be sent, of which the last is sent just before another comes behind it."""

    def append(self, packet: Any, /) -> None:
        """Take it in, after all others have left."""
        self.clear()
        super().append(packet)


def test_a_packet_that_comes_when_the_last_has_just_left_wakes_who_sends() -> None:
    """Who sends has nothing to send then, and would wait for a second before it looked again."""
    client = PacketClient(CallbackAPIVersion.VERSION2, client_id="late")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        client._sockpairW = ours
        client._thread = threading.current_thread()
        client._out_packet = SentMeanwhile([{"packet": b"sent by now"}])
        client._packet_queue(0x30, b"\x30\x03\x00\x01a", 0, 0)
        assert theirs.recv(10)
        client._thread = client._sockpairW = None


class Interrupted(PacketClient):
    """A client whose socket takes ten bytes at a time; during the first, another packet comes."""

    def __init__(self) -> None:
        """See paho's."""
        super().__init__(CallbackAPIVersion.VERSION2, client_id="interrupted")
        self.was_alone: list[bool] = []

    def _sock_send(self, buf: Any) -> int:
        self.was_alone.append(self._sending.locked())
        if len(self.was_alone) == 1:
            packed = {"command": 0xC0, "mid": 0, "qos": 0, "pos": 0, "to_process": 2, "info": None}
            self._out_packet.append({**packed, "packet": b"\xc0\x00"})
        return super()._sock_send(buf[:10])


def test_the_rest_of_a_packet_goes_out_before_what_came_meanwhile() -> None:
    """And at no time do two threads send."""
    client = Interrupted()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        client._sock, client._thread = ours, threading.current_thread()
        body = b"\x00\x01t\x00\x07" + bytes(range(30))
        client._packet_queue(0x32, b"\x32\x23" + body, 7, 1)
        client._packet_write()
        assert theirs.recv(100) == b"\x32\x23" + body + b"\xc0\x00"
        assert len(client.was_alone) == 5
        assert all(client.was_alone)
        client._sock = client._thread = None


def test_what_is_handed_over_together_leaves_together_in_order() -> None:
    """At QoS 1 in one packet of the network, and acknowledgements that come so are told so."""
    client = PacketClient(CallbackAPIVersion.VERSION2, client_id="together")
    told: list[list[int]] = []
    client.on_acknowledged = told.append
    client._thread = threading.current_thread()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    messages = [Outgoing(f"t/{n}", b"x" * 70 * n, 1, retain=n == 2) for n in range(1, 4)]
    with ours, theirs:
        client._sock = ours
        assert client.send(enumerate(messages, 7))
        came = io.BytesIO(theirs.recv(10_000))
        for number, message in enumerate(messages, 7):
            assert came.getvalue()[came.tell()] == 0x32 | message.retain
            kind, body = frame(came)
            assert kind == 0x30
            assert body == b"\0\3" + message.topic.encode() + bytes([0, number]) + message.payload
        assert not came.read()
        theirs.send(b"\x40\x02\x00\x07\x40\x02\x00\x08")
        client.loop_read()
        assert told == [[7, 8]]
        client._sock = client._thread = None
        assert not client.send([(1, messages[0])])
