"""Packets as MQTT 5 has them, where they differ from those of MQTT 3.1.1."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from amqtt.mqtt.packet import (
    CONNACK,
    DISCONNECT,
    PINGREQ,
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
)

from broker.embedded import properties
from broker.embedded.packets import (
    FLAGS,
    QOS_FLAGS,
    RETAIN_FLAG,
    Bytes,
    Message,
    length,
    misfit,
    read_filters,
    read_head,
    read_id,
)
from broker.embedded.reason_codes import Code, MalformedPacketError

SIZES: Final = {PINGREQ: 0}
NO_PROPERTIES: Final = b"\0"
NO_LOCAL: Final = 0b0000_0100  # of a subscription's options
AS_PUBLISHED: Final = 0b0000_1000
RETAIN_HANDLING: Final = 0b0011_0000
_RESERVED: Final = 0b1100_0000


class Message5(Message):
    """A message with properties: `properties` are those that go on as they came."""

    __slots__ = ("_lasts_s", "expires_s", "properties")

    def __init__(self, plain: Message, found: properties.Found) -> None:
        super().__init__(plain.topic, plain.payload, plain.qos, plain.retain)
        self.properties = found.passed_on
        self.expires_s: float | None = None
        self._lasts_s: int | None = found.values.get(properties.MESSAGE_EXPIRY)

    def start_clock(self, now_s: float) -> None:
        """See `Message`."""
        if self._lasts_s is not None:
            self.expires_s = now_s + self._lasts_s

    def kept(self) -> Message:
        """See `Message`."""
        same = properties.Found({properties.MESSAGE_EXPIRY: self._lasts_s}, 0, self.properties)
        kept = Message5(super().kept(), same)
        kept.expires_s = self.expires_s
        return kept


def with_properties(plain: Message, found: properties.Found) -> Message:
    """Return a message with its properties, if it has any. Raises `MalformedPacketError`."""
    if not found.values and not found.passed_on:
        return plain
    answer_to = found.values.get(properties.RESPONSE_TOPIC, "")
    if "+" in answer_to or "#" in answer_to:
        raise MalformedPacketError("an answer to no topic", Code.PROTOCOL_ERROR)
    return Message5(plain, found)


def read_publish(first: int, body: Bytes) -> tuple[Message, int]:
    """Return the message of a PUBLISH, and its packet id. Raises `MalformedPacketError`."""
    topic, packet_id, at = read_head(first, body)
    found = properties.read(PUBLISH, body, at)
    if properties.TOPIC_ALIAS in found.values:
        raise MalformedPacketError("a topic alias, which none may have", Code.TOPIC_ALIAS_INVALID)
    if properties.SUBSCRIPTION_ID in found.values or (first & QOS_FLAGS and not packet_id):
        raise MalformedPacketError("a message with a number of ours", Code.PROTOCOL_ERROR)
    plain = Message(topic, body[found.end :], (first & QOS_FLAGS) >> 1, first & RETAIN_FLAG)
    return with_properties(plain, found), packet_id


def property_bytes(message: Message, identifiers: Iterable[int], now_s: float) -> bytes:
    """Return the properties of a message as a subscriber is sent them now."""
    found = message.properties
    for identifier in identifiers:
        found = bytes((properties.SUBSCRIPTION_ID,)) + length(identifier) + found
    if message.expires_s is not None:
        left_s = max(0, math.ceil(message.expires_s - now_s))
        found = bytes((properties.MESSAGE_EXPIRY,)) + left_s.to_bytes(4, "big") + found
    return length(len(found)) + found if found else NO_PROPERTIES


def read_answer(kind: int, body: Bytes) -> tuple[int, int]:
    """Return what an acknowledgement is for, and its reason code."""
    if len(body) < 2:
        misfit(kind)
    return read_id(body), _read_reason(kind, body, 2)[0]


def read_goodbye(body: Bytes) -> tuple[int, int | None]:
    """Return the reason code of a DISCONNECT, and the session expiry that it asks for, in s."""
    code, found = _read_reason(DISCONNECT, body, 0)
    return code, None if found is None else found.values.get(properties.SESSION_EXPIRY)


def _read_reason(kind: int, body: Bytes, at: int) -> tuple[int, properties.Found | None]:
    if len(body) == at:
        return Code.SUCCESS, None
    code = body[at]
    if not properties.is_reason(kind, code):
        raise MalformedPacketError(f"packet type {kind}: reason code {code:#x}")
    if len(body) == at + 1:
        return code, None
    found = properties.read(kind, body, at + 1)
    if found.end != len(body):
        misfit(kind)
    return code, found


def read_subscribe(body: Bytes) -> tuple[int, int, list[tuple[str, int]]]:
    """Return the packet id of a SUBSCRIBE, its identifier or 0, and its filters with options."""
    found = properties.read(SUBSCRIBE, body, 2)
    packet_id, filters = read_filters(SUBSCRIBE, body, found.end)
    for _, options in filters:
        if options & _RESERVED or options & 3 == 3 or options & RETAIN_HANDLING == RETAIN_HANDLING:
            raise MalformedPacketError(f"options {options:08b}", Code.PROTOCOL_ERROR)
    return packet_id, found.values.get(properties.SUBSCRIPTION_ID, 0), filters


def read_unsubscribe(body: Bytes) -> tuple[int, list[str]]:
    """Return the packet id of an UNSUBSCRIBE, and its filters."""
    found = properties.read(UNSUBSCRIBE, body, 2)
    packet_id, filters = read_filters(UNSUBSCRIBE, body, found.end)
    return packet_id, [name for name, _ in filters]


def answer(kind: int, packet_id: int, code: Code) -> bytes:
    """Return an acknowledgement."""
    head = bytes((kind << 4 | FLAGS.get(kind, 0),))
    if code is Code.SUCCESS:
        return head + b"\2" + packet_id.to_bytes(2, "big")
    return head + b"\3" + packet_id.to_bytes(2, "big") + bytes((code,))


def answer_all(kind: int, packet_id: int, codes: bytes) -> bytes:
    """Return a SUBACK or an UNSUBACK."""
    body = packet_id.to_bytes(2, "big") + NO_PROPERTIES + codes
    return bytes((kind << 4,)) + length(len(body)) + body


def connack(code: Code, properties_: bytes = NO_PROPERTIES, *, present: bool = False) -> bytes:
    """Return a CONNACK."""
    body = bytes((present, code)) + properties_
    return bytes((CONNACK << 4,)) + length(len(body)) + body


def disconnect(code: Code) -> bytes:
    """Return a DISCONNECT."""
    return bytes((DISCONNECT << 4, 1, code))
