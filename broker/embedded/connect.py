"""A CONNECT, and the CONNACK that accepts it, of MQTT 3.1.1 and of MQTT 5."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

from broker.embedded import properties
from broker.embedded.limits import Reason
from broker.embedded.message import Message
from broker.embedded.packets import Fields, Kind, check, connack, length
from broker.embedded.reason_codes import Code, PacketError, RefusedError
from broker.embedded.settings import ServerSettings

LEVELS: Final = (4, 5)  # MQTT 3.1.1, MQTT 5
MAX_HELD: Final = 20  # QoS 2 messages that their sender has not released
MAX_RECEIVE: Final = 65_535
MAX_PACKET_BYTES: Final = 268_435_460  # the limit of MQTT itself
_CLEAN: Final = 0b0000_0010
_WILL: Final = 0b0000_0100
_WILL_RETAIN: Final = 0b0010_0000
_WILL_OPTIONS: Final = 0b0011_1000
_PASSWORD: Final = 0b0100_0000
_USER: Final = 0b1000_0000


@dataclass(slots=True)
class Connect:
    """What a CONNECT asks for. User name and password are not kept: nothing uses them."""

    level: int
    keepalive_s: int
    client_id: str = ""
    is_clean: bool = True
    assigned_id: str = ""  # for a client without an id of its own
    will: Message | None = None
    will_delay_s: int = 0
    expiry_s: int = 0
    receive_maximum: int = MAX_RECEIVE
    max_packet_bytes: int = MAX_PACKET_BYTES


def accepted(asked: Connect, settings: ServerSettings, *, present: bool) -> bytes:
    """Return the CONNACK of a client that is admitted; `present` if its session was kept."""
    if asked.level == 4:
        return connack(4, Code.SUCCESS)
    most_bytes = settings.max_packet_bytes
    named = {"AssignedClientIdentifier": asked.assigned_id} if asked.assigned_id else {}
    granted = properties.write(
        Kind.CONNACK,
        SessionExpiryInterval=asked.expiry_s,
        ReceiveMaximum=MAX_HELD,
        MaximumPacketSize=1 + len(length(most_bytes)) + most_bytes,
        TopicAliasMaximum=0,
        SharedSubscriptionAvailable=0,
        **named,
    )
    return connack(5, Code.SUCCESS, granted, present=present)


def read_connect(first: int, body: bytes) -> Connect:
    """Return what a CONNECT asks for. Raises `RefusedError`."""
    fields, level = Fields(Kind.CONNECT, body), 4
    try:
        level = _read_level(fields)
        check(level, first, len(body))
        return _read(level, fields)
    except PacketError as error:
        raise RefusedError(Reason.MALFORMED, str(error), error.code, level) from None


def _read_level(fields: Fields) -> int:
    protocol = fields.text()
    if protocol != "MQTT":
        raise RefusedError(Reason.CONNECT, f"protocol {protocol!r}, not 'MQTT'")
    level = fields.integer(1)
    if level not in LEVELS:
        # mosquitto's bridge sets the highest bit at first, and needs an answer of its level.
        nearest = 5 if level & 0x7F >= 5 else 4
        detail = f"protocol level {level}"
        raise RefusedError(Reason.CONNECT, detail, Code.UNSUPPORTED_VERSION, nearest)
    return level


def _read(level: int, fields: Fields) -> Connect:
    flags = fields.integer(1)
    asked = Connect(level, keepalive_s=fields.integer(2))
    if flags & 1 or (flags & _WILL_OPTIONS and not flags & _WILL):
        raise PacketError(f"packet type {Kind.CONNECT}: flags {flags:08b}")
    if level == 5:
        asked.is_clean = bool(flags & _CLEAN)
        _take_properties(asked, properties.read(fields).values)
    asked.client_id = fields.text()
    if flags & _WILL:
        _read_will(asked, flags, fields)
    if flags & _USER:
        fields.text()
    if flags & _PASSWORD:
        if level == 4 and not flags & _USER:
            raise RefusedError(Reason.CONNECT, "a password without a user", Code.BAD_USER)
        fields.binary()
    if not fields.at_end():
        raise fields.misfit()
    if not asked.client_id:
        if level == 4 and not flags & _CLEAN:
            detail = "no client id, for a session to be kept"
            raise RefusedError(Reason.CONNECT, detail, Code.CLIENT_ID_INVALID)
        asked.client_id = asked.assigned_id = uuid.uuid4().hex
    return asked


def _take_properties(asked: Connect, found: dict[int, int]) -> None:
    if properties.AUTHENTICATION_METHOD in found:
        detail = "an authentication method; the broker knows certificates only"
        raise RefusedError(Reason.CONNECT, detail, Code.BAD_AUTHENTICATION_METHOD, 5)
    if properties.AUTHENTICATION_DATA in found:
        raise PacketError("authentication data without a method", Code.PROTOCOL_ERROR)
    asked.expiry_s = found.get(properties.SESSION_EXPIRY, 0)
    asked.receive_maximum = found.get(properties.RECEIVE_MAXIMUM, MAX_RECEIVE)
    asked.max_packet_bytes = found.get(properties.MAX_PACKET_SIZE, MAX_PACKET_BYTES)


def _read_will(asked: Connect, flags: int, fields: Fields) -> None:
    found = properties.NONE
    if asked.level == 5:
        found = properties.read(fields, properties.WILL)
    will = Message(fields.text(), fields.binary(), flags >> 3 & 3, bool(flags & _WILL_RETAIN))
    will.add_properties(found)
    asked.will, asked.will_delay_s = will, found.values.get(properties.WILL_DELAY, 0)
