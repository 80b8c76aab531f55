"""MQTT packets of both levels, 4 (MQTT 3.1.1) and 5: their fields, and the short answers."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from broker.embedded.reason_codes import Code, PacketError


class Kind(IntEnum):
    """The packet types."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14


LENGTH_BYTES: Final = 4  # of a remaining length, at most (MQTT 3.1.1, 2.2.3)
QOS_FLAGS: Final = 0b0110
FLAGS: Final = {Kind.PUBREL: 2, Kind.SUBSCRIBE: 2, Kind.UNSUBSCRIBE: 2}  # the others have none
SIZES: Final = {
    4: {
        Kind.PUBACK: 2, Kind.PUBREC: 2, Kind.PUBREL: 2, Kind.PUBCOMP: 2, Kind.PINGREQ: 0,
        Kind.DISCONNECT: 0,
    },
    5: {Kind.PINGREQ: 0},
}  # fmt: skip
NO_PROPERTIES: Final = b"\0"
RETURN_CODES: Final = {  # of a CONNACK at level 4 (3.2.2.3); other refusals have none
    Code.SUCCESS: 0,
    Code.UNSUPPORTED_VERSION: 1,
    Code.CLIENT_ID_INVALID: 2,
    Code.QUOTA_EXCEEDED: 3,
    Code.BAD_USER: 4,
    Code.NOT_AUTHORIZED: 5,
}
PINGRESP: Final = b"\xd0\x00"


class Fields:
    """The fields of a packet's body, read in order. Raises `PacketError` where one is too short."""

    def __init__(self, kind: int, body: bytes) -> None:
        self.kind = kind
        self.body = body
        self.at = 0

    def at_end(self) -> bool:
        """Whether every byte has been read."""
        return self.at == len(self.body)

    def misfit(self) -> PacketError:
        """Return the error for lengths that contradict each other."""
        return PacketError(f"packet type {self.kind}: its lengths contradict each other")

    def take(self, size_bytes: int) -> bytes:
        """Return the next bytes."""
        end = self.at + size_bytes
        if end > len(self.body):
            raise self.misfit()
        found = self.body[self.at : end]
        self.at = end
        return found

    def integer(self, size_bytes: int) -> int:
        """Return an integer of fixed size."""
        return int.from_bytes(self.take(size_bytes), "big")

    def number(self) -> int:
        """Return an integer of one to four bytes (MQTT 5, 1.5.5)."""
        value = 0
        for place in range(LENGTH_BYTES):
            byte = self.integer(1)
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value
        raise self.misfit()

    def binary(self) -> bytes:
        """Return bytes with their length in front."""
        return self.take(self.integer(2))

    def text(self) -> str:
        """Return a string (MQTT 3.1.1, 1.5.3)."""
        try:
            value = self.binary().decode()
        except UnicodeDecodeError:
            value = "\0"
        if "\0" in value:
            raise PacketError(f"packet type {self.kind}: a string that is not valid")
        return value

    def rest(self) -> bytes:
        """Return all that is left."""
        return self.take(len(self.body) - self.at)


def check(level: int, first: int, size_bytes: int) -> int:
    """Return the type of a packet. Raises `PacketError` unless its flags and size fit."""
    kind, flags = first >> 4, first & 0x0F
    if kind == Kind.PUBLISH:
        is_good = flags & QOS_FLAGS != QOS_FLAGS
    else:
        is_good = flags == FLAGS.get(Kind(kind), 0) if 0 < kind <= Kind.DISCONNECT else True
    if not is_good:
        raise PacketError(f"packet type {kind}: flags {flags:04b}")
    if SIZES[level].get(kind, size_bytes) != size_bytes:  # type: ignore[call-overload]
        raise PacketError(f"packet type {kind}: {size_bytes} bytes")
    return kind


def length(size_bytes: int) -> bytes:
    """Return a remaining length: seven bits a byte, lowest first (MQTT 3.1.1, 2.2.3)."""
    digits = bytearray()
    while True:
        size_bytes, digit = divmod(size_bytes, 128)
        digits.append(digit | (0x80 if size_bytes else 0))
        if not size_bytes:
            return bytes(digits)


def packet(kind: Kind, body: bytes, flags: int | None = None) -> bytes:
    """Return a whole packet."""
    first = kind << 4 | (FLAGS.get(kind, 0) if flags is None else flags)
    return bytes((first,)) + length(len(body)) + body


def answer(level: int, kind: Kind, packet_id: int, code: Code = Code.SUCCESS) -> bytes:
    """Return an acknowledgement; level 4 has no codes in it."""
    told = bytes((code,)) if level == 5 and code else b""
    return packet(kind, packet_id.to_bytes(2, "big") + told)


def answer_filters(level: int, kind: Kind, packet_id: int, codes: bytes) -> bytes:
    """Return a SUBACK or an UNSUBACK."""
    return packet(kind, packet_id.to_bytes(2, "big") + NO_PROPERTIES * (level == 5) + codes)


def connack(
    level: int, code: Code, properties: bytes = NO_PROPERTIES, *, present: bool = False
) -> bytes:
    """Return a CONNACK, or nothing where level 4 has no such code."""
    if level == 5:
        return packet(Kind.CONNACK, bytes((present, code)) + properties)
    if code not in RETURN_CODES:
        return b""
    return packet(Kind.CONNACK, bytes((0, RETURN_CODES[code])))


def disconnect(code: Code) -> bytes:
    """Return a DISCONNECT of level 5."""
    return packet(Kind.DISCONNECT, bytes((code,)))


def read_filters(fields: Fields) -> list[tuple[str, int]]:
    """Return the filters of a SUBSCRIBE with their options byte, or of an UNSUBSCRIBE with 0."""
    found = []
    while not fields.at_end():
        name = fields.text()
        found.append((name, fields.integer(1) if fields.kind == Kind.SUBSCRIBE else 0))
    if not found or not all(name for name, _ in found):
        raise PacketError(f"packet type {fields.kind}: no filter", Code.PROTOCOL_ERROR)
    return found
