"""A CONNECT, and what answers it: of MQTT 3.1.1 and of MQTT 5.

Replaces: amqtt's decoder bears a CONNECT that is shorter or longer than it says, and reads the
properties of MQTT 5 as a client id.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Final

from amqtt.mqtt.packet import CONNECT

from broker.embedded import packets5 as five
from broker.embedded import properties
from broker.embedded.limits import Reason
from broker.embedded.packets import (
    QOS_FLAGS,
    Bytes,
    Message,
    length,
    misfit,
    read_string,
)
from broker.embedded.peer import MAX_HELD, Session
from broker.embedded.reason_codes import Code, MalformedPacketError, RefusedError
from broker.embedded.settings import ServerSettings

LEVELS: Final = (4, 5)  # MQTT 3.1.1, MQTT 5
CONNACK: Final = b"\x20\x02\x00"  # of MQTT 3.1.1, and the code
_RETURN_CODES: Final = {  # of MQTT 3.1.1 (3.2.2.3); what has none is not told
    Code.SUCCESS: 0,
    Code.UNSUPPORTED_VERSION: 1,
    Code.CLIENT_ID_INVALID: 2,
    Code.QUOTA_EXCEEDED: 3,
    Code.BAD_USER: 4,
    Code.NOT_AUTHORIZED: 5,
}
_CLEAN: Final = 0b0000_0010
_WILL: Final = 0b0000_0100
_WILL_RETAIN: Final = 0b0010_0000
_WILL_OPTIONS: Final = 0b0011_1000
_PASSWORD: Final = 0b0100_0000
_USER: Final = 0b1000_0000


def accepted(session: Session, settings: ServerSettings, *, present: bool) -> bytes:
    """Return the CONNACK of somebody who is let in; `present` if the session was there before."""
    if session.level == 4:
        return CONNACK + b"\0"
    most_bytes = settings.max_packet_bytes
    named = {"AssignedClientIdentifier": session.assigned_id} if session.assigned_id else {}
    granted = properties.write(
        CONNACK[0] >> 4,
        SessionExpiryInterval=session.expiry_s,
        ReceiveMaximum=MAX_HELD,
        MaximumPacketSize=1 + len(length(most_bytes)) + most_bytes,
        TopicAliasMaximum=0,
        SharedSubscriptionAvailable=0,
        **named,
    )
    return five.connack(Code.SUCCESS, granted, present=present)


def refusal(refused: RefusedError) -> bytes | None:
    """Return the CONNACK of somebody who is not, if there is one that says so."""
    if refused.code is None:
        return None
    if refused.level > 4:
        return five.connack(refused.code)
    code = _RETURN_CODES.get(refused.code)
    return None if code is None else CONNACK + bytes((code,))


def read_connect(first: int, body: Bytes) -> Session:
    """Return what a CONNECT asks for. Raises `RefusedError`."""
    level, at = 4, 0
    try:
        level, at = _read_level(first, body)
        return _read(level, body, at)
    except MalformedPacketError as error:
        raise RefusedError(Reason.MALFORMED, str(error), error.code, level) from None


def _read_level(first: int, body: Bytes) -> tuple[int, int]:
    protocol, at = read_string(CONNECT, body, 0)
    if protocol != "MQTT":
        raise RefusedError(Reason.CONNECT, f"protocol {protocol!r}, not 'MQTT'")
    if at >= len(body):
        misfit(CONNECT)
    level = body[at]
    if level not in LEVELS:
        # A bridge of mosquitto sets the highest bit at first, and understands its level's answer.
        spoken = 5 if level & 0x7F >= 5 else 4
        detail = f"protocol level {level}"
        raise RefusedError(Reason.CONNECT, detail, Code.UNSUPPORTED_VERSION, spoken)
    if first & 0x0F:
        raise MalformedPacketError(f"packet type {CONNECT}: flags {first & 0x0F:04b}")
    return level, at + 1


def _read(level: int, body: Bytes, at: int) -> Session:
    if at + 3 > len(body):
        misfit(CONNECT)
    flags, keepalive_s, at = body[at], body[at + 1] << 8 | body[at + 2], at + 3
    if flags & 1 or (flags & _WILL_OPTIONS and not flags & _WILL):
        raise MalformedPacketError(f"packet type {CONNECT}: flags {flags:08b}")
    asked = properties.Found({}, at, b"")
    if level == 5:
        asked = properties.read(CONNECT, body, at)
        _check_authentication(asked)
    client_id, at = read_string(CONNECT, body, asked.end)
    session = Session(client_id, keepalive_s, None, level)
    if flags & _WILL:
        session, at = _with_will(session, flags, body, at)
    if flags & _USER:
        _, at = read_string(CONNECT, body, at)
    if flags & _PASSWORD:
        if level == 4 and not flags & _USER:
            raise RefusedError(Reason.CONNECT, "a password without a user", Code.BAD_USER)
        _, at = _read_bytes(body, at)
    if at != len(body):
        misfit(CONNECT)
    if not client_id:
        if level == 4 and not flags & _CLEAN:
            detail = "no client id, for a session to be kept"
            raise RefusedError(Reason.CONNECT, detail, Code.CLIENT_ID_INVALID)
        given = uuid.uuid4().hex
        session = replace(session, client_id=given, assigned_id=given)
    if level == 4:
        return session  # a clean one, whatever it says
    return replace(
        session,
        is_clean=bool(flags & _CLEAN),
        expiry_s=asked.values.get(properties.SESSION_EXPIRY, 0),
        receive_maximum=asked.values.get(properties.RECEIVE_MAXIMUM, session.receive_maximum),
        max_packet_bytes=asked.values.get(properties.MAX_PACKET_SIZE, session.max_packet_bytes),
    )


def _check_authentication(asked: properties.Found) -> None:
    if properties.AUTHENTICATION_METHOD in asked.values:
        detail = "an authentication method: the certificate is the only one"
        raise RefusedError(Reason.CONNECT, detail, Code.BAD_AUTHENTICATION_METHOD, 5)
    if properties.AUTHENTICATION_DATA in asked.values:
        raise MalformedPacketError("authentication data of no method", Code.PROTOCOL_ERROR)


def _with_will(session: Session, flags: int, body: Bytes, at: int) -> tuple[Session, int]:
    found = properties.Found({}, at, b"")
    if session.level == 5:
        found = properties.read(properties.WILL, body, at)
    topic, at = read_string(CONNECT, body, found.end)
    payload, at = _read_bytes(body, at)
    qos = flags >> 2 & QOS_FLAGS
    message = Message(topic, payload, qos >> 1, bool(flags & _WILL_RETAIN))
    will = five.with_properties(message, found)
    delay_s = found.values.get(properties.WILL_DELAY, 0)
    return replace(session, will=will, will_delay_s=delay_s), at


def _read_bytes(body: Bytes, at: int) -> tuple[bytes, int]:
    end = at + 2 + int.from_bytes(body[at : at + 2], "big")
    if end > len(body) or at + 2 > len(body):
        misfit(CONNECT)
    return bytes(body[at + 2 : end]), end
