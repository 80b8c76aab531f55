"""MQTT 5's reason codes (2.4), and the errors that carry them."""

from __future__ import annotations

from enum import IntEnum

from broker.embedded.limits import Reason


class Code(IntEnum):
    """The codes that the broker sends or checks for."""

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


class PacketError(Exception):
    """A packet that ends its connection: malformed, too large, or not allowed at this time."""

    def __init__(self, detail: str, code: Code = Code.MALFORMED) -> None:
        super().__init__(detail)
        self.code = code

    @property
    def reason(self) -> Reason:
        """How the refusal is counted."""
        return Reason.OVERSIZE if self.code is Code.TOO_LARGE else Reason.MALFORMED


class RefusedError(Exception):
    """A connection that is not admitted. A code is sent in a CONNACK of protocol `level`."""

    def __init__(
        self, reason: Reason, detail: str, code: Code | None = None, level: int = 4
    ) -> None:
        super().__init__(detail)
        self.reason = reason
        self.code = code
        self.level = level
