"""The properties and reason codes of MQTT 5 (2.2.2, 2.4).

Their types and packets come from paho's tables, and paho's encoder writes ours. Its decoder copies
the rest of the packet for each property, so that 1 MiB of empty user properties takes minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from broker.embedded.packets import Code, Fields, RefusedError

WILL: Final = PacketTypes.WILLMESSAGE  # beside the packet types
_Properties: Any = Properties  # which has no annotations
_PAHO: Final = _Properties(PacketTypes.CONNECT)
_NAMES: Final[dict[str, int]] = _PAHO.names
_KNOWN: Final[dict[int, tuple[int, list[int]]]] = _PAHO.properties

MESSAGE_EXPIRY: Final = _NAMES["Message Expiry Interval"]
RESPONSE_TOPIC: Final = _NAMES["Response Topic"]
SUBSCRIPTION_ID: Final = _NAMES["Subscription Identifier"]
SESSION_EXPIRY: Final = _NAMES["Session Expiry Interval"]
AUTHENTICATION_METHOD: Final = _NAMES["Authentication Method"]
AUTHENTICATION_DATA: Final = _NAMES["Authentication Data"]
WILL_DELAY: Final = _NAMES["Will Delay Interval"]
RECEIVE_MAXIMUM: Final = _NAMES["Receive Maximum"]
TOPIC_ALIAS: Final = _NAMES["Topic Alias"]
MAX_PACKET_SIZE: Final = _NAMES["Maximum Packet Size"]
_USER: Final = _NAMES["User Property"]
_FORMAT: Final = _NAMES["Payload Format Indicator"]
_PASSED_ON: Final = {
    _FORMAT, _NAMES["Content Type"], RESPONSE_TOPIC, _NAMES["Correlation Data"], _USER,
}  # fmt: skip
_NOT_ZERO: Final = {RECEIVE_MAXIMUM, MAX_PACKET_SIZE, SUBSCRIPTION_ID}
_FLAGS: Final = {
    _FORMAT, _NAMES["Request Problem Information"], _NAMES["Request Response Information"],
}  # fmt: skip


class Found(NamedTuple):
    """The properties of a packet, without user properties; `passed_on` are a subscriber's."""

    values: dict[int, Any]
    passed_on: bytes


NONE: Final = Found({}, b"")


def _pair(fields: Fields) -> None:
    fields.text()
    fields.text()


_READERS: Final[tuple[Callable[[Fields], Any], ...]] = (  # in the order of paho's types
    lambda fields: fields.integer(1),
    lambda fields: fields.integer(2),
    lambda fields: fields.integer(4),
    Fields.number,
    Fields.binary,
    Fields.text,
    _pair,
)


def read(fields: Fields, kind: int | None = None) -> Found:
    """Return the properties that come next in a packet, or those of a `WILL` within it.

    Raises `RefusedError` for one of another packet, one that stands twice, or one out of range.
    """
    kind = fields.kind if kind is None else kind
    size_bytes = fields.number()
    end = fields.at + size_bytes
    values: dict[int, Any] = {}
    passed_on = []
    while fields.at < end:
        begin = fields.at
        identifier = fields.integer(1)
        type_, packets = _KNOWN.get(identifier, (0, []))
        if kind not in packets:
            raise RefusedError(f"packet type {kind}: property {identifier}")
        value = _READERS[type_](fields)
        if identifier != _USER:
            _check(identifier, value, values)
            values[identifier] = value
        if identifier in _PASSED_ON:
            passed_on.append(fields.body[begin : fields.at])
    if fields.at != end:
        raise fields.misfit()
    return Found(values, b"".join(passed_on))


def _check(identifier: int, value: Any, before: dict[int, Any]) -> None:
    if identifier in before:
        raise RefusedError(f"property {identifier} twice", Code.PROTOCOL_ERROR)
    if (identifier in _NOT_ZERO and not value) or (identifier in _FLAGS and value > 1):
        raise RefusedError(f"property {identifier} is {value}", Code.PROTOCOL_ERROR)


def write(kind: int, **values: Any) -> bytes:
    """Return properties, by paho's names, with their length in front."""
    properties = _Properties(kind)
    for name, value in values.items():
        setattr(properties, name, value)
    return bytes(properties.pack())


def read_reason(fields: Fields) -> tuple[int, Found]:
    """Return the reason code at the end of a packet, 0 where there is none, and its properties."""
    if fields.at_end():
        return Code.SUCCESS, NONE
    code = fields.integer(1)
    if not _is_reason(fields.kind, code):
        raise RefusedError(f"packet type {fields.kind}: reason code {code:#x}")
    if fields.at_end():
        return code, NONE
    found = read(fields)
    if not fields.at_end():
        raise fields.misfit()
    return code, found


@cache
def _is_reason(kind: int, value: int) -> bool:
    try:
        ReasonCode(kind, identifier=value)
    except (KeyError, ValueError):
        return False
    return True
