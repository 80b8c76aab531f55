"""A client's packets, cut out of its bytes and read; and those that are sent.

Replaces: amqtt reads whatever length a packet announces, up to 256 MiB, into memory; it trusts the
lengths within a packet more than the packet's own, so that the rest of one is taken for the next;
and after one that it cannot read it goes on. Its decoders await each field, its encoders copy the
payload three times: a PUBLISH of 200 bytes took 13 us to read and write, here it takes 3.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from amqtt.mqtt.packet import (
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBSCRIBE,
    UNSUBSCRIBE,
)

from broker.embedded.reason_codes import Code, MalformedPacketError, OversizePacketError

LENGTH_BYTES: Final = 4  # of the remaining length (MQTT 3.1.1, 2.2.3)
SIZES: Final = {PUBACK: 2, PUBREC: 2, PUBREL: 2, PUBCOMP: 2, PINGREQ: 0, DISCONNECT: 0}
FLAGS: Final = {PUBREL: 2, SUBSCRIBE: 2, UNSUBSCRIBE: 2}  # of all others but PUBLISH none (2.2.2)
RETAIN_FLAG: Final = 0b0001
QOS_FLAGS: Final = 0b0110
CRUMB_BYTES: Final = 4 * 1024  # what is smaller is gathered
VIEWED_BYTES: Final = 64 * 1024  # what is at least so large is passed on without a copy
PINGRESP: Final = b"\xd0\x00"

Bytes = bytes | memoryview


@dataclass(frozen=True, slots=True)
class PacketLimits:
    """The largest bodies that are read, in bytes, by type of packet."""

    connect_bytes: int
    publish_bytes: int
    other_bytes: int

    def of(self, kind: int) -> int:
        """Return the limit of one type."""
        if kind == PUBLISH:
            return self.publish_bytes
        limit_bytes = self.connect_bytes if kind == CONNECT else self.other_bytes
        return min(limit_bytes, self.publish_bytes)


class Cutter:
    """Cuts what comes in, however it is chopped, into packets.

    Holds at most one packet that is not complete, besides what `feed` was last given. A body of
    `VIEWED_BYTES` is a view of that, a smaller one a copy, so that no small message that waits
    somewhere keeps all that came with it in memory.
    """

    def __init__(self, limits: PacketLimits) -> None:
        self._limits = limits
        self._data = b""
        self._at = 0
        self._more: list[bytes | bytearray] = []
        self._missing_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """How much of a packet that is not complete is held."""
        return len(self._data) + sum(map(len, self._more))

    def feed(self, data: bytes) -> None:
        """Take what came next."""
        self._missing_bytes -= len(data)
        if self._at == len(self._data) and not self._more:
            self._data, self._at = data, 0
        elif len(data) >= CRUMB_BYTES:
            self._more.append(data)
        elif self._more and isinstance(self._more[-1], bytearray):
            self._more[-1] += data  # an object for each would take many times its size
        else:
            self._more.append(bytearray(data))

    def next(self) -> tuple[int, Bytes] | None:
        """Return the next packet, as its first byte and its body; none until more has come.

        Raises, before the body has come, `OversizePacketError` and `MalformedPacketError`.
        """
        if self._missing_bytes > 0:
            return None
        found = self._cut()
        if found is None and self._more:
            self._data = b"".join((memoryview(self._data)[self._at :], *self._more))
            self._at = 0
            self._more.clear()
            found = self._cut()
        if found is None and self._at:
            self._data, self._at = self._data[self._at :], 0
        return found

    def _cut(self) -> tuple[int, Bytes] | None:
        data, at = self._data, self._at
        size_bytes, begin = 0, at + 1
        for place in range(LENGTH_BYTES):
            if begin >= len(data):
                self._missing_bytes = 1 - sum(map(len, self._more))
                return None
            byte = data[begin]
            begin += 1
            size_bytes |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                break
        else:
            raise MalformedPacketError("a length of more than four bytes")
        limit_bytes = self._limits.of(data[at] >> 4)
        if size_bytes > limit_bytes:
            raise OversizePacketError(
                f"a packet of {size_bytes} bytes, at most {limit_bytes} are taken"
            )
        end = begin + size_bytes
        if end > len(data):
            self._missing_bytes = end - len(data) - sum(map(len, self._more))
            return None
        self._at = end
        if size_bytes >= VIEWED_BYTES:
            return data[at], memoryview(data)[begin:end]
        return data[at], data[begin:end]

    def expect(self, kind: int) -> None:
        """Raise `MalformedPacketError` when the packet that comes next is of another type."""
        first = self._data[self._at :][:1] or next((one for one in self._more if one), b"")
        if first and first[0] >> 4 != kind:
            raise MalformedPacketError(f"packet type {first[0] >> 4}, not {kind}")


def check(first: int, size_bytes: int, sizes: Mapping[int, int] = SIZES) -> int:
    """Return the type of a packet. Raises `MalformedPacketError` unless its flags and size fit."""
    kind, flags = first >> 4, first & 0x0F
    if kind == PUBLISH:
        if flags & QOS_FLAGS == QOS_FLAGS:
            raise MalformedPacketError(f"packet type {kind}: flags {flags:04b}")
    elif flags != FLAGS.get(kind, 0):
        raise MalformedPacketError(f"packet type {kind}: flags {flags:04b}")
    elif sizes.get(kind, size_bytes) != size_bytes:
        misfit(kind)
    return kind


def misfit(kind: int) -> NoReturn:
    """Raise `MalformedPacketError` for lengths that contradict each other."""
    raise MalformedPacketError(f"packet type {kind}: not as long as it says")


def read_string(kind: int, body: Bytes, at: int) -> tuple[str, int]:
    """Return the string at `at`, and where it ends (MQTT 3.1.1, 1.5.3)."""
    end = at + 2 + (body[at] << 8 | body[at + 1]) if at + 2 <= len(body) else 0
    if not end or end > len(body):
        misfit(kind)
    try:
        return str(body[at + 2 : end], "utf-8"), end
    except UnicodeDecodeError:
        raise MalformedPacketError(f"packet type {kind}: a string that is none") from None


def read_number(kind: int, body: Bytes, at: int) -> tuple[int, int]:
    """Return the integer of one to four bytes at `at`, and where it ends (MQTT 5, 1.5.5)."""
    value = 0
    for place, byte in enumerate(body[at : at + LENGTH_BYTES]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    misfit(kind)


def read_id(body: Bytes, at: int = 0) -> int:
    """Return the packet id at `at`."""
    return body[at] << 8 | body[at + 1]


def read_filters(kind: int, body: Bytes, at: int = 2) -> tuple[int, list[tuple[str, int]]]:
    """Return the packet id of a SUBSCRIBE or UNSUBSCRIBE, and its filters, which begin at `at`.

    With each the byte of its options, of which MQTT 3.1.1 knows the QoS; 0 of the latter.
    """
    if len(body) < 2:
        misfit(kind)
    found = []
    while at < len(body):
        name, at = read_string(kind, body, at)
        options = 0
        if kind == SUBSCRIBE:
            if at >= len(body):
                misfit(kind)
            options, at = body[at], at + 1
        found.append((name, options))
    return read_id(body), found


def length(size_bytes: int) -> bytes:
    """Return a remaining length: seven bits a byte, lowest first (MQTT 3.1.1, 2.2.3)."""
    digits = bytearray()
    while True:
        size_bytes, digit = divmod(size_bytes, 128)
        digits.append(digit | (0x80 if size_bytes else 0))
        if not size_bytes:
            return bytes(digits)


def answer(kind: int, packet_id: int, _taken: bool = True) -> bytes:
    """Return an acknowledgement of this type, which a message that was dropped has as well."""
    return struct.pack("!BBH", kind << 4 | FLAGS.get(kind, 0), 2, packet_id)


class Message:
    """A message on its way, as its PUBLISH had it; the payload is not to be altered."""

    __slots__ = ("_head", "_plain", "payload", "qos", "retain", "topic")

    properties: bytes = b""  # of MQTT 5, for subscribers of MQTT 5
    expires_s: float | None = None  # by the loop's clock

    def __init__(self, topic: str, payload: Bytes, qos: int = 0, retain: int = 0) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self._head: bytes | None = None
        self._plain: bytes | None = None

    @classmethod
    def read(cls, first: int, body: Bytes) -> tuple[Message, int]:
        """Return the message of a PUBLISH, and the packet id at QoS 1 and 2.

        Raises `MalformedPacketError` for one to no topic, or to a filter (MQTT 3.1.1, 3.3.2-2).
        """
        topic, packet_id, at = read_head(first, body)
        message = cls(topic, body[at:], (first & QOS_FLAGS) >> 1, first & RETAIN_FLAG)
        return message, packet_id

    def begin(
        self, qos: int, packet_id: int, retain: int, dup: int = 0, properties: bytes = b""
    ) -> bytes:
        """Return all of its packet that comes before the payload."""
        if self._head is None:
            name = self.topic.encode()
            self._head = len(name).to_bytes(2, "big") + name
        head = self._head if not qos else self._head + packet_id.to_bytes(2, "big")
        if properties:
            head += properties
        first = PUBLISH << 4 | dup << 3 | qos << 1 | retain
        return bytes((first,)) + length(len(head) + len(self.payload)) + head

    def plain(self) -> bytes:
        """Return its whole packet as most are sent it: at QoS 0. Made once for all of them."""
        if self._plain is None:
            self._plain = b"".join((self.begin(0, 0, 0), self.payload))
        return self._plain

    @property
    def size_bytes(self) -> int:
        """What it takes in memory for as long as it is kept, without its topic."""
        return len(self.payload) + len(self.properties)

    def is_over(self, now_s: float) -> bool:
        """Tell whether it was meant for an earlier time."""
        return self.expires_s is not None and now_s >= self.expires_s

    def start_clock(self, now_s: float) -> None:
        """Have it expire so long from now as its properties say; MQTT 3.1.1 has none."""

    def kept(self) -> Message:
        """Return it to be retained: it keeps nothing else in memory."""
        return Message(self.topic, bytes(self.payload), self.qos, self.retain)


def read_head(first: int, body: Bytes) -> tuple[str, int, int]:
    """Return a PUBLISH's topic, its packet id (0 at QoS 0), and where these end."""
    topic, at = read_string(PUBLISH, body, 0)
    if not topic or "\0" in topic or "+" in topic or "#" in topic:
        code = Code.TOPIC_INVALID if topic else Code.PROTOCOL_ERROR
        raise MalformedPacketError("a message to no topic", code)
    if not first & QOS_FLAGS:
        return topic, 0, at
    if at + 2 > len(body):
        misfit(PUBLISH)
    return topic, read_id(body, at), at + 2
