"""MQTT 3.1.1 (level 4) and 5 by hand, for what no well-behaved client does."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from typing import Any, Self

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

DEADLINE_S = 60.0
CONNACK = b"\x20\x02\x00"  # and the code
EMPTY = b"\0"


def text(value: str | bytes) -> bytes:
    """Return a string as MQTT has it, with its length before it."""
    data = value.encode() if isinstance(value, str) else value
    return len(data).to_bytes(2, "big") + data


def packet(first: int, body: bytes) -> bytes:
    """Return a packet of a type and flags, with its length."""
    left, digits = len(body), b""
    while True:
        left, digit = divmod(left, 128)
        digits += bytes([digit | (0x80 if left else 0)])
        if not left:
            return bytes([first]) + digits + body


def props(kind: int, **named: Any) -> bytes:
    """Return properties by paho's names, with their length before them."""
    found = Properties(kind)
    for name, value in named.items():
        setattr(found, name, value)
    return bytes(found.pack())


def read_props(kind: int, data: bytes) -> Any:
    found = Properties(kind)
    found.unpack(data)
    return found


def connect(
    client_id: str = "x",
    *,
    level: int = 4,
    clean: bool = True,
    keepalive_s: int = 60,
    will: tuple[str, bytes] | None = None,
    will_props: bytes = EMPTY,
    user: str | None = None,
    raw: bytes | None = None,
    **named: Any,
) -> bytes:
    """Return a CONNECT; `raw` stands in the place of its properties."""
    flags = 2 * clean | (0x0C if will else 0) | (0x80 if user else 0)
    body = text("MQTT") + bytes([level, flags]) + keepalive_s.to_bytes(2, "big")
    body += _own(PacketTypes.CONNECT, level, raw, named) + text(client_id)
    if will is not None:
        body += (b"" if level == 4 else will_props) + text(will[0]) + text(will[1])
    if user is not None:
        body += text(user)
    return packet(0x10, body)


def publish(
    topic: str,
    payload: bytes = b"",
    *,
    level: int = 4,
    qos: int = 0,
    number: int = 1,
    retain: bool = False,
    raw: bytes | None = None,
    **named: Any,
) -> bytes:
    """Return a PUBLISH; `raw` stands in the place of its properties."""
    head = text(topic) + (number.to_bytes(2, "big") if qos else b"")
    head += _own(PacketTypes.PUBLISH, level, raw, named)
    return packet(0x30 | qos << 1 | retain, head + payload)


def subscribe(*filters: str, level: int = 4, options: int = 0, raw: bytes = EMPTY) -> bytes:
    """Return a SUBSCRIBE, its number 1; at level 4, its `options` are the QoS."""
    own = b"" if level == 4 else raw
    return packet(0x82, b"\0\1" + own + b"".join(text(one) + bytes([options]) for one in filters))


connect5, publish5, subscribe5 = (partial(one, level=5) for one in (connect, publish, subscribe))


def _own(kind: int, level: int, raw: bytes | None, named: dict[str, Any]) -> bytes:
    if level == 4:
        return b""
    return props(kind, **named) if raw is None else raw


def wire(port: int, context: ssl.SSLContext | None = None) -> socket.socket:
    """Return a connection, with TLS where a context is given."""
    plain = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
    if context is None:
        return plain
    try:
        return context.wrap_socket(plain, server_hostname="127.0.0.1")
    except OSError:
        plain.close()
        raise


def heard(connection: socket.socket, count: int) -> bytes:
    """Return the next `count` bytes, or less if the connection ends before."""
    seen = b""
    while len(seen) < count:
        try:
            got = connection.recv(count - len(seen))
        except TimeoutError:
            raise
        except OSError:  # reset, or an alert of TLS
            got = b""
        if not got:
            break
        seen += got
    return seen


@contextlib.contextmanager
def joined(
    port: int, context: ssl.SSLContext | None = None, *, first: bytes = b""
) -> Iterator[socket.socket]:
    """Give a connection whose CONNECT, that of a client `x` or `first`, was accepted."""
    with wire(port, context) as connection:
        connection.sendall(first or connect("x"))
        assert heard(connection, 4) == CONNACK + b"\0"
        yield connection


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
        first = heard(self.sock, 1)
        if not first:
            return 0, b""
        size, place = 0, 0
        while True:
            (digit,) = heard(self.sock, 1)
            size |= (digit & 0x7F) << place
            place += 7
            if digit < 0x80:
                return first[0], heard(self.sock, size)

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
