"""A minimal MQTT 3.1.1 client for a simulated host: as little memory and time as can be.

It speaks CONNECT with a will, SUBSCRIBE, PUBLISH at QoS 0 and 1, PUBACK and PINGREQ. What it
publishes at QoS 1 is not sent again: the fleet's own protocol repeats what matters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from tests.harness.rawmqtt import packet

PING: Final = b"\xc0\x00"
GOODBYE: Final = b"\xe0\x00"
_CONNACK, _PUBLISH, _SUBACK = 0x20, 0x30, 0x90


@dataclass(frozen=True, slots=True)
class Message:
    """A message on a topic, both as bytes."""

    topic: bytes
    payload: bytes
    qos: int = 1
    retain: bool = False


def connect(client_id: str, keepalive_s: int, will: Message) -> bytes:
    """Return CONNECT with a clean session."""
    flags = 0x02 | 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
    head = b"\x00\x04MQTT\x04" + bytes([flags]) + keepalive_s.to_bytes(2, "big")
    return packet(0x10, head + _text(client_id.encode()) + _text(will.topic) + _text(will.payload))


def subscribe(filters: Sequence[tuple[str, int]]) -> bytes:
    """Return SUBSCRIBE to (filter, QoS) pairs."""
    body = b"".join(_text(name.encode()) + bytes([qos]) for name, qos in filters)
    return packet(0x82, b"\x00\x01" + body)


def publish(message: Message, packet_id: int) -> bytes:
    """Return PUBLISH."""
    first = _PUBLISH | message.qos << 1 | message.retain
    number = packet_id.to_bytes(2, "big") if message.qos else b""
    return packet(first, _text(message.topic) + number + message.payload)


class Connection(asyncio.Protocol):
    """One connection; subclasses say what is to be done when something comes."""

    def __init__(self, hello: bytes, subscription: bytes) -> None:
        """`hello` is CONNECT, `subscription` is SUBSCRIBE; they are sent in this order."""
        self._hello = hello
        self._subscription = subscription
        self._rest = b""
        self._packet_id = 0
        self.transport: asyncio.Transport | None = None

    def on_ready(self) -> None:
        """Every subscription was taken."""

    def on_message(self, topic: bytes, payload: bytes, *, retained: bool) -> None:
        """A message has come."""

    def on_lost(self) -> None:
        """The connection has ended."""

    def send(self, message: Message) -> None:
        """Publish, if there is a connection."""
        if self.transport is not None:
            self._packet_id = self._packet_id % 0xFFFF + 1
            self.transport.write(publish(message, self._packet_id))

    def ping(self) -> None:
        """Show the broker that somebody is there."""
        if self.transport is not None:
            self.transport.write(PING)

    def close(self) -> None:
        """Say goodbye to the broker, so that it does not publish the will."""
        if self.transport is not None:
            self.transport.write(GOODBYE)
            self.transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio's: send CONNECT."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._hello)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """asyncio's: there is no connection any more."""
        self.transport = None
        self.on_lost()

    def data_received(self, data: bytes) -> None:
        """asyncio's: take whole packets, keep the rest."""
        data = self._rest + data
        at = 0
        while (found := _frame(data, at)) is not None:
            begin, end = found
            self._take(data[at], data[begin:end])
            at = end
        self._rest = data[at:]

    def _take(self, first: int, body: bytes) -> None:
        match first & 0xF0:
            case 0x30:
                self._on_publish(first, body)
            case 0x20 if body[1] == 0 and self.transport is not None:
                self.transport.write(self._subscription)
            case 0x90 if max(body[2:]) <= 2:
                self.on_ready()
            case 0x20 | 0x90 if self.transport is not None:
                self.transport.close()  # refused

    def _on_publish(self, first: int, body: bytes) -> None:
        length = int.from_bytes(body[:2], "big")
        topic, at = body[2 : 2 + length], 2 + length
        if first & 0x06:
            if self.transport is not None:
                self.transport.write(b"\x40\x02" + body[at : at + 2])
            at += 2
        self.on_message(topic, body[at:], retained=bool(first & 1))


def _frame(data: bytes, at: int) -> tuple[int, int] | None:
    """Return where the body of the packet at `at` begins and ends; none while it is not whole."""
    length, shift, begin = 0, 0, at + 1
    while begin < len(data):
        byte = data[begin]
        length |= (byte & 0x7F) << shift
        shift, begin = shift + 7, begin + 1
        if byte < 0x80:
            return (begin, begin + length) if begin + length <= len(data) else None
    return None


def _text(value: bytes) -> bytes:
    return len(value).to_bytes(2, "big") + value
