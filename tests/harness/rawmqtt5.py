"""MQTT 5 by hand: each packet as bytes, with properties as paho writes them."""

from __future__ import annotations

import socket
import ssl
from typing import Any, Self

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.harness.rawmqtt import packet, text, wire

EMPTY = b"\0"


def props(kind: int, **named: Any) -> bytes:
    """Return properties by paho's names, with their length before them."""
    found = Properties(kind)
    for name, value in named.items():
        setattr(found, name, value)
    return bytes(found.pack())


def connect5(
    client_id: str = "x",
    *,
    clean: bool = True,
    level: int = 5,
    keepalive_s: int = 60,
    will: tuple[str, bytes] | None = None,
    will_props: bytes = EMPTY,
    raw: bytes | None = None,
    **named: Any,
) -> bytes:
    """Return a CONNECT; `raw` stands in the place of its properties."""
    flags = 2 * clean | (0x0C if will else 0)
    own = props(PacketTypes.CONNECT, **named) if raw is None else raw
    body = text("MQTT") + bytes([level, flags]) + keepalive_s.to_bytes(2, "big") + own
    body += text(client_id)
    if will is not None:
        body += will_props + text(will[0]) + len(will[1]).to_bytes(2, "big") + will[1]
    return packet(0x10, body)


def publish5(
    topic: str,
    payload: bytes = b"",
    *,
    qos: int = 0,
    number: int = 1,
    retain: bool = False,
    raw: bytes | None = None,
    **named: Any,
) -> bytes:
    """Return a PUBLISH."""
    own = props(PacketTypes.PUBLISH, **named) if raw is None else raw
    head = text(topic) + (number.to_bytes(2, "big") if qos else b"")
    return packet(0x30 | qos << 1 | retain, head + own + payload)


def subscribe5(*filters: str, options: int = 0, raw: bytes = EMPTY) -> bytes:
    """Return a SUBSCRIBE, its number 1."""
    return packet(0x82, b"\0\1" + raw + b"".join(text(one) + bytes([options]) for one in filters))


class Peer5:
    """A connection of MQTT 5; `granted` has the CONNACK's properties, `present` its flag."""

    def __init__(
        self, port: int, client_id: str = "x", tls: ssl.SSLContext | None = None, **options: Any
    ) -> None:
        self.sock: socket.socket = wire(port, tls)
        self.say(connect5(client_id, **options))
        first, body = self.next()
        assert (first, body[1]) == (0x20, 0), (first, body)
        self.present = bool(body[0])
        self.granted = read_props(PacketTypes.CONNACK, body[2:])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def say(self, *packets: bytes) -> None:
        self.sock.sendall(b"".join(packets))

    def next(self) -> tuple[int, bytes]:
        """Return the next packet's first byte and its body; (0, b"") at the end."""
        first = self._read(1)
        if not first:
            return 0, b""
        size, place = 0, 0
        while True:
            (digit,) = self._read(1)
            size |= (digit & 0x7F) << place
            place += 7
            if digit < 0x80:
                return first[0], self._read(size)

    def message(self) -> tuple[int, str, bytes, Any]:
        """Return the next PUBLISH's flags, topic, payload and properties; acknowledge it.

        A PUBREL before it is answered.
        """
        while (found_packet := self.next())[0] == 0x62:
            self.say(packet(0x70, found_packet[1][:2]))
        first, body = found_packet
        assert first >> 4 == 3, (hex(first), body)
        size = int.from_bytes(body[:2], "big")
        topic, at = body[2 : 2 + size].decode(), 2 + size
        if first & 6:
            number, at = body[at : at + 2], at + 2
            self.say(packet(0x40 if first & 6 == 2 else 0x50, number))
        found = Properties(PacketTypes.PUBLISH)
        _, used = found.unpack(body[at:])
        return first & 15, topic, body[at + used :], found

    def subscribe(self, *filters: str, options: int = 0) -> bytes:
        self.say(subscribe5(*filters, options=options))
        first, body = self.next()
        assert (first, body[:3]) == (0x90, b"\0\1\0")
        return body[3:]

    def ping(self) -> None:
        """Check that nothing comes before the answer to a ping."""
        self.say(b"\xc0\0")
        assert self.next() == (0xD0, b"")

    def ends(self) -> int:
        """Return the code of the DISCONNECT that the connection ends with."""
        first, body = self.next()
        assert first == 0xE0, (hex(first), body)
        assert self.next() == (0, b"")
        return body[0]

    def _read(self, count: int) -> bytes:
        seen = b""
        while len(seen) < count:
            try:
                got = self.sock.recv(count - len(seen))
            except ConnectionError:
                got = b""
            if not got:
                break
            seen += got
        return seen


def read_props(kind: int, data: bytes) -> Any:
    found = Properties(kind)
    found.unpack(data)
    return found
