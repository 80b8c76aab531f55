"""Why something is refused or ended: MQTT 5's reason codes (2.4), and the errors that bear them.

A client of MQTT 3.1.1 is told a few of them, in a CONNACK and by 0x80 in a SUBACK.
"""

from __future__ import annotations

from enum import IntEnum

from broker.embedded.limits import Reason


class Code(IntEnum):
    """Those that the broker sends or asks for."""

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
    SILENT = 0x8D  # "Keep Alive timeout"
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


class OversizePacketError(Exception):
    """A client announced a packet larger than the limit."""

    code = Code.TOO_LARGE


class MalformedPacketError(Exception):
    """A client sent what is no packet, or none that it may send now."""

    def __init__(self, detail: str, code: Code = Code.MALFORMED) -> None:
        super().__init__(detail)
        self.code = code


class RefusedError(Exception):
    """Somebody is not let in. With a code, a CONNACK of this level of the protocol says so."""

    def __init__(
        self, reason: Reason, detail: str, code: Code | None = None, level: int = 4
    ) -> None:
        super().__init__(detail)
        self.reason = reason
        self.code = code
        self.level = level
