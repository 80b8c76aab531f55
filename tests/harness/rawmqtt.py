"""MQTT by hand, for what no well-behaved client does."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator

DEADLINE_S = 60.0
CONNACK = b"\x20\x02\x00"  # and the code


def text(value: str) -> bytes:
    """Return a string as MQTT has it, with its length before it."""
    return len(value.encode()).to_bytes(2, "big") + value.encode()


def packet(first: int, body: bytes) -> bytes:
    """Return a packet of a type and flags, with its length."""
    left, digits = len(body), b""
    while True:
        left, digit = divmod(left, 128)
        digits += bytes([digit | (0x80 if left else 0)])
        if not left:
            return bytes([first]) + digits + body


def connect(
    client_id: str,
    *,
    keepalive_s: int = 60,
    will: tuple[str, bytes] | None = None,
    user: str | None = None,
) -> bytes:
    """Return a CONNECT (MQTT 3.1.1, clean session)."""
    flags = 2 | (0x0C if will else 0) | (0x80 if user else 0)
    body = text("MQTT") + bytes([4, flags]) + keepalive_s.to_bytes(2, "big") + text(client_id)
    if will is not None:
        body += text(will[0]) + len(will[1]).to_bytes(2, "big") + will[1]
    if user is not None:
        body += text(user)
    return packet(0x10, body)


def publish(topic: str, payload: bytes, *, qos: int = 0, number: int = 1) -> bytes:
    """Return a PUBLISH."""
    head = text(topic) + (number.to_bytes(2, "big") if qos else b"")
    return packet(0x30 | qos << 1, head + payload)


def subscribe(*filters: str, qos: int = 0) -> bytes:
    """Return a SUBSCRIBE, its number 1."""
    return packet(0x82, b"\0\1" + b"".join(text(one) + bytes([qos]) for one in filters))


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
