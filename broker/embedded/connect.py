"""A CONNECT, and the CONNACK that accepts it, of MQTT 3.1.1 and of MQTT 5."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

from broker.embedded import properties
from broker.embedded.limits import Reason
from broker.embedded.message import Message
from broker.embedded.packets import Code, Fields, Kind, RefusedError, check, connack, length
from broker.embedded.settings import ServerSettings

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

    level: int = 4  # 4 is MQTT 3.1.1, 5 is MQTT 5
    keepalive_s: int = 0
    client_id: str = ""
    is_clean: bool = True
    assigned_id: str = ""  # for a client without an id of its own
    will: Message | None = None
    will_delay_s: int = 0
    expiry_s: int = 0
    receive_maximum: int = MAX_RECEIVE
    max_packet_bytes: int = MAX_PACKET_BYTES

    def read(self, first: int, body: bytes) -> None:
        """Read the packet. Raises `RefusedError`, whose answer is of `level` as it is then."""
        fields = Fields(Kind.CONNECT, body)
        protocol = fields.text()
        if protocol != "MQTT":
            raise _refused(f"protocol {protocol!r}, not 'MQTT'")
        level = fields.integer(1)
        # mosquitto's bridge sets the highest bit at first, and needs an answer of its level.
        self.level = 5 if level & 0x7F >= 5 else 4
        if level != self.level:
            raise _refused(f"protocol level {level}", Code.UNSUPPORTED_VERSION)
        check(level, first, len(body))
        flags = fields.integer(1)
        self.keepalive_s = fields.integer(2)
        if flags & 1 or (flags & _WILL_OPTIONS and not flags & _WILL):
            raise RefusedError(f"packet type {Kind.CONNECT}: flags {flags:08b}")
        if level == 5:
            self.is_clean = bool(flags & _CLEAN)
            self._take_properties(properties.read(fields).values)
        self.client_id = fields.text()
        if flags & _WILL:
            self._read_will(flags, fields)
        if flags & _USER:
            fields.text()
        if flags & _PASSWORD:
            if level == 4 and not flags & _USER:
                raise _refused("a password without a user", Code.BAD_USER)
            fields.binary()
        if not fields.at_end():
            raise fields.misfit()
        if not self.client_id:
            if level == 4 and not flags & _CLEAN:
                raise _refused("no client id, for a session to be kept", Code.CLIENT_ID_INVALID)
            self.client_id = self.assigned_id = uuid.uuid4().hex

    def _take_properties(self, found: dict[int, int]) -> None:
        if properties.AUTHENTICATION_METHOD in found:
            detail = "an authentication method; the broker knows certificates only"
            raise _refused(detail, Code.BAD_AUTHENTICATION_METHOD)
        if properties.AUTHENTICATION_DATA in found:
            raise RefusedError("authentication data without a method", Code.PROTOCOL_ERROR)
        self.expiry_s = found.get(properties.SESSION_EXPIRY, 0)
        self.receive_maximum = found.get(properties.RECEIVE_MAXIMUM, MAX_RECEIVE)
        self.max_packet_bytes = found.get(properties.MAX_PACKET_SIZE, MAX_PACKET_BYTES)

    def _read_will(self, flags: int, fields: Fields) -> None:
        found = properties.NONE
        if self.level == 5:
            found = properties.read(fields, properties.WILL)
        will = Message(fields.text(), fields.binary(), flags >> 3 & 3, bool(flags & _WILL_RETAIN))
        will.add_properties(found)
        self.will, self.will_delay_s = will, found.values.get(properties.WILL_DELAY, 0)

    def accepted(self, settings: ServerSettings, *, present: bool) -> bytes:
        """Return the CONNACK of a client that is admitted; `present` if its session was kept."""
        if self.level == 4:
            return connack(4, Code.SUCCESS)
        most_bytes = settings.max_packet_bytes
        named = {"AssignedClientIdentifier": self.assigned_id} if self.assigned_id else {}
        granted = properties.write(
            Kind.CONNACK,
            SessionExpiryInterval=self.expiry_s,
            ReceiveMaximum=MAX_HELD,
            MaximumPacketSize=1 + len(length(most_bytes)) + most_bytes,
            TopicAliasMaximum=0,
            SharedSubscriptionAvailable=0,
            **named,
        )
        return connack(5, Code.SUCCESS, granted, present=present)


def _refused(detail: str, code: Code = Code.MALFORMED) -> RefusedError:
    return RefusedError(detail, code, Reason.CONNECT)
