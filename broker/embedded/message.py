"""A message on its way, and its PUBLISH."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from broker.embedded import properties
from broker.embedded.packets import (
    NO_PROPERTIES,
    QOS_FLAGS,
    Code,
    Fields,
    Kind,
    RefusedError,
    length,
    packet,
)
from broker.embedded.properties import Found

RETAIN_FLAG: Final = 0b0001


@dataclass(slots=True)
class Message:
    """A message, as its PUBLISH or a will has it."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: bytes = b""  # of MQTT 5: those that subscribers are sent
    lasts_s: int | None = None
    expires_s: float | None = None  # on the loop's clock

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, without its topic."""
        return len(self.payload) + len(self.properties)

    def start_clock(self, now_s: float) -> None:
        """Have it expire after its message expiry interval."""
        if self.lasts_s is not None:
            self.expires_s = now_s + self.lasts_s

    def is_over(self, now_s: float) -> bool:
        """Tell whether it has expired."""
        return self.expires_s is not None and now_s >= self.expires_s

    def add_properties(self, found: Found) -> None:
        """Take over the properties of its packet. Raises `RefusedError`."""
        answer_to = found.values.get(properties.RESPONSE_TOPIC, "")
        if "+" in answer_to or "#" in answer_to:
            raise RefusedError("a response topic with wildcards", Code.PROTOCOL_ERROR)
        self.properties = found.passed_on
        self.lasts_s = found.values.get(properties.MESSAGE_EXPIRY)


def read_publish(level: int, first: int, body: bytes) -> tuple[Message, int]:
    """Return the message of a PUBLISH, and its packet id, 0 at QoS 0. Raises `RefusedError`."""
    fields = Fields(Kind.PUBLISH, body)
    topic = fields.text()
    if not topic or "+" in topic or "#" in topic:
        code = Code.TOPIC_INVALID if topic else Code.PROTOCOL_ERROR
        raise RefusedError("a topic that is empty or has wildcards", code)
    qos = (first & QOS_FLAGS) >> 1
    packet_id = fields.integer(2) if qos else 0
    found = properties.read(fields) if level == 5 else properties.NONE
    if properties.TOPIC_ALIAS in found.values:
        raise RefusedError("a topic alias, though none was granted", Code.TOPIC_ALIAS_INVALID)
    if properties.SUBSCRIPTION_ID in found.values or (level == 5 and qos and not packet_id):
        raise RefusedError("an identifier that is not the client's to use", Code.PROTOCOL_ERROR)
    message = Message(topic, fields.rest(), qos, bool(first & RETAIN_FLAG))
    message.add_properties(found)
    return message, packet_id


@dataclass(slots=True)
class Letter:
    """A message as one client is to have it, until it is acknowledged.

    `message` is none when it will not be sent again: only its acknowledgement is awaited.
    """

    message: Message | None
    qos: int
    retain: bool
    identifiers: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        message = self.message
        return 200 + (message.size_bytes + len(message.topic) if message else 0)


def write_publish(
    level: int, letter: Letter, message: Message, packet_id: int, *, dup: bool, now_s: float
) -> bytes:
    """Return the PUBLISH that brings a message to a client."""
    name = message.topic.encode()
    head = len(name).to_bytes(2, "big") + name
    if letter.qos:
        head += packet_id.to_bytes(2, "big")
    if level == 5:
        head += _properties(message, letter.identifiers, now_s)
    flags = dup << 3 | letter.qos << 1 | letter.retain
    return packet(Kind.PUBLISH, head, flags, message.payload)


def _properties(message: Message, identifiers: Iterable[int], now_s: float) -> bytes:
    found = message.properties
    for identifier in identifiers:
        found = bytes((properties.SUBSCRIPTION_ID,)) + length(identifier) + found
    if message.expires_s is not None:
        left_s = max(0, math.ceil(message.expires_s - now_s))
        found = bytes((properties.MESSAGE_EXPIRY,)) + left_s.to_bytes(4, "big") + found
    return length(len(found)) + found if found else NO_PROPERTIES
