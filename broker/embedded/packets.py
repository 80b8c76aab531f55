"""MQTT packets of both levels, 4 (MQTT 3.1.1) and 5: fields, reason codes, short answers."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from broker.embedded.limits import Reason


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


class Code(IntEnum):
    """MQTT 5's reason codes (2.4) that the broker sends or checks for."""

    SUCCESS = 0x00
    NO_SUBSCRIPTION_EXISTED = 0x11
    MALFORMED = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_ERROR = 0x83
    UNSUPPORTED_VERSION = 0x84
    CLIENT_ID_INVALID = 0x85
    BAD_USER = 0x86
    NOT_AUTHORIZED = 0x87
    SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEPALIVE_TIMEOUT = 0x8D
    TAKEN_OVER = 0x8E
    FILTER_INVALID = 0x8F
    TOPIC_INVALID = 0x90
    ID_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    TOO_LARGE = 0x95
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE = 0x98
    NO_SHARED_SUBSCRIPTIONS = 0x9E


class RefusedError(Exception):
    """What ends a connection, or keeps it out. MQTT 5 tells the client the code."""

    def __init__(
        self, detail: str, code: Code = Code.MALFORMED, reason: Reason | None = None
    ) -> None:
        super().__init__(detail)
        self.code = code
        by_code = Reason.OVERSIZE if code is Code.TOO_LARGE else Reason.MALFORMED
        self.reason = reason or by_code  # under which it is counted


LENGTH_BYTES: Final = 4  # of a remaining length, at most (MQTT 3.1.1, 2.2.3)
QOS_FLAGS: Final = 0b0110
# The other kinds have none.
FLAGS: Final[dict[int, int]] = {Kind.PUBREL: 2, Kind.SUBSCRIBE: 2, Kind.UNSUBSCRIBE: 2}
SIZES: Final[dict[int, dict[int, int]]] = {
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
    """Reads the fields of a packet's body in order. Raises `RefusedError` for a short one."""

    def __init__(self, kind: int, body: bytes) -> None:
        self.kind = kind
        self.body = body
        self.at = 0

    def at_end(self) -> bool:
        """Whether every byte has been read."""
        return self.at == len(self.body)

    def misfit(self) -> RefusedError:
        """Return the error for lengths that contradict each other."""
        return RefusedError(f"packet type {self.kind}: its lengths contradict each other")

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
        """Return an integer of one to four bytes."""
        value, end = read_number(self.body, self.at)
        if not end:
            raise self.misfit()
        self.at = end
        return value

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
            raise RefusedError(f"packet type {self.kind}: a string that is not valid")
        return value

    def rest(self) -> bytes:
        """Return all that is left."""
        return self.take(len(self.body) - self.at)


def check(level: int, first: int, size_bytes: int) -> int:
    """Return the type of a packet. Raises `RefusedError` unless its flags and size fit."""
    kind, flags = first >> 4, first & 0x0F
    if kind == Kind.PUBLISH:
        is_good = flags & QOS_FLAGS != QOS_FLAGS
    else:
        is_good = flags == FLAGS.get(kind, 0)
    if not is_good:
        raise RefusedError(f"packet type {kind}: flags {flags:04b}")
    if SIZES[level].get(kind, size_bytes) != size_bytes:
        raise RefusedError(f"packet type {kind}: {size_bytes} bytes")
    return kind


def read_number(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return a number of one to four bytes (MQTT 5, 1.5.5) and where it ends, 0 if it is cut off.

    Seven bits a byte, lowest first; a packet's length is one.
    """
    value = 0
    for place, byte in enumerate(data[at : at + LENGTH_BYTES]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    if at + LENGTH_BYTES > len(data):
        return 0, 0
    raise RefusedError("a length of more than four bytes")


def length(size_bytes: int) -> bytes:
    """Return a remaining length: seven bits a byte, lowest first (MQTT 3.1.1, 2.2.3)."""
    digits = bytearray()
    while True:
        size_bytes, digit = divmod(size_bytes, 128)
        digits.append(digit | (0x80 if size_bytes else 0))
        if not size_bytes:
            return bytes(digits)


def packet(kind: Kind, body: bytes, flags: int | None = None, payload: bytes = b"") -> bytes:
    """Return a whole packet; a payload after its body is copied once."""
    first = kind << 4 | (FLAGS.get(kind, 0) if flags is None else flags)
    return b"".join((bytes((first,)), length(len(body) + len(payload)), body, payload))


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
        raise RefusedError(f"packet type {fields.kind}: no filter", Code.PROTOCOL_ERROR)
    return found
