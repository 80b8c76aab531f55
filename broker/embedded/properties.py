"""Properties and reason codes of MQTT 5 (2.2.2, 2.4).

Which there are, of what type, and in which packets, paho's tables say; its encoder writes ours. Its
decoder is not for strangers: it copies the rest of the packet for each property, so that 1 MiB of
empty user properties would hold everybody up for minutes. Here it is 0.4 s.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from broker.embedded.packets import Bytes, misfit, read_number, read_string
from broker.embedded.reason_codes import Code, MalformedPacketError
from broker.embedded.subscriptions import Subscriptions

# The identifiers that a client gives its subscriptions, and their messages bear (3.8.2).


class Identifiers:
    """Those of one session, by filter. A client of which none has any is not asked."""

    def __init__(self) -> None:
        self._by_filter: dict[str, int] = {}
        self._filters: Subscriptions[int] = Subscriptions()  # whose subscribers are identifiers

    def give(self, filter_: str, identifier: int) -> None:
        """Take note of that of a subscription, or that it has none (0)."""
        before = self._by_filter.pop(filter_, 0)
        if before:
            self._filters.remove(filter_, before)
        if identifier:
            self._by_filter[filter_] = identifier
            self._filters.add(filter_, identifier, 0)

    def of_filter(self, filter_: str) -> tuple[int, ...]:
        """Return that of one subscription."""
        identifier = self._by_filter.get(filter_)
        return () if identifier is None else (identifier,)

    def of_topic(self, topic: str) -> tuple[int, ...]:
        """Return those of all subscriptions that a message comes by, each once."""
        return tuple(self._filters.matching(topic))


WILL: Final = PacketTypes.WILLMESSAGE  # beside the types of packets
_Properties: Any = Properties  # which bears no types
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
_PASSED_ON: Final = {
    _NAMES["Payload Format Indicator"], _NAMES["Content Type"], RESPONSE_TOPIC,
    _NAMES["Correlation Data"], _USER,
}  # fmt: skip
_NOT_ZERO: Final = {RECEIVE_MAXIMUM, MAX_PACKET_SIZE, SUBSCRIPTION_ID}
_FLAGS: Final = {
    _NAMES["Payload Format Indicator"], _NAMES["Request Problem Information"],
    _NAMES["Request Response Information"],
}  # fmt: skip


class Found(NamedTuple):
    """The properties of a packet, without those of users; where they end.

    `passed_on` has, as they came, those that a subscriber is sent with the message.
    """

    values: dict[int, Any]
    end: int
    passed_on: bytes


def read(kind: int, body: Bytes, at: int) -> Found:
    """Return the properties at `at` of a packet, or of a `WILL`.

    Raises `MalformedPacketError` for what is none of its own, stands twice or is out of range.
    """
    size_bytes, at = read_number(kind, body, at)
    end = at + size_bytes
    if end > len(body):
        misfit(kind)
    if not size_bytes:
        return Found({}, end, b"")
    values: dict[int, Any] = {}
    passed_on = []
    while at < end:
        begin, identifier = at, body[at]
        type_, packets = _KNOWN.get(identifier, (0, ()))
        if kind not in packets:
            raise MalformedPacketError(f"packet type {kind}: property {identifier}")
        value, at = _READERS[type_](kind, body, at + 1)
        if at > end:
            misfit(kind)
        if identifier != _USER:
            _check(identifier, value, values)
            values[identifier] = value
        if identifier in _PASSED_ON:
            passed_on.append(body[begin:at])
    return Found(values, end, b"".join(passed_on))


def _check(identifier: int, value: Any, before: dict[int, Any]) -> None:
    if identifier in before:
        raise MalformedPacketError(f"property {identifier} twice", Code.PROTOCOL_ERROR)
    if (identifier in _NOT_ZERO and not value) or (identifier in _FLAGS and value > 1):
        raise MalformedPacketError(f"property {identifier} is {value}", Code.PROTOCOL_ERROR)


def write(kind: int, **values: Any) -> bytes:
    """Return properties, by paho's names, with their length before them."""
    properties = _Properties(kind)
    for name, value in values.items():
        setattr(properties, name, value)
    return bytes(properties.pack())


@cache
def is_reason(kind: int, value: int) -> bool:
    """Tell whether a packet of this type may bear this reason code."""
    try:
        ReasonCode(kind, identifier=value)
    except (KeyError, ValueError):
        return False
    return True


def _integer(size_bytes: int) -> Callable[[int, Bytes, int], tuple[int, int]]:
    def read_integer(kind: int, body: Bytes, at: int) -> tuple[int, int]:
        end = at + size_bytes
        if end > len(body):
            misfit(kind)
        return int.from_bytes(body[at:end], "big"), end

    return read_integer


def _binary(kind: int, body: Bytes, at: int) -> tuple[bytes, int]:
    size_bytes, at = _READERS[1](kind, body, at)
    end = at + size_bytes
    if end > len(body):
        misfit(kind)
    return bytes(body[at:end]), end


def _text(kind: int, body: Bytes, at: int) -> tuple[str, int]:
    value, end = read_string(kind, body, at)
    if "\0" in value:
        raise MalformedPacketError(f"packet type {kind}: a string that is none")
    return value, end


def _pair(kind: int, body: Bytes, at: int) -> tuple[None, int]:
    _, at = _text(kind, body, at)
    return None, _text(kind, body, at)[1]


# In the order of paho's types.
_READERS: Final[tuple[Callable[[int, Bytes, int], tuple[Any, int]], ...]] = (
    _integer(1), _integer(2), _integer(4), read_number, _binary, _text, _pair,
)  # fmt: skip
