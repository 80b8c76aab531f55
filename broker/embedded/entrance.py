"""Who comes in: TLS, the certificate, and the CONNECT, all of it before any session is touched.

Replaces: amqtt asks who somebody is after it has deleted the session that has the same client id,
so that a refused CONNECT silences whoever bears that id; it waits for ever for a CONNECT; it takes
any will; and the name that its access lists see is one that the client has chosen.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import Final

from amqtt.adapters import BufferReader
from amqtt.errors import AMQTTError, CodecError, MQTTError, NoDataError
from amqtt.mqtt.connack import (
    BAD_USERNAME_PASSWORD,
    IDENTIFIER_REJECTED,
    NOT_AUTHORIZED,
    SERVER_UNAVAILABLE,
    UNACCEPTABLE_PROTOCOL_VERSION,
)
from amqtt.mqtt.connect import ConnectPacket
from amqtt.mqtt.packet import CONNECT, MQTTFixedHeader

from broker.acl import rights_of
from broker.embedded.client import Arrival, Session
from broker.embedded.distribution import may_publish
from broker.embedded.doors import Doors
from broker.embedded.gate import Gate
from broker.embedded.identity import Guest, Identity
from broker.embedded.line import Line
from broker.embedded.packets import (
    Bytes,
    Cutter,
    MalformedPacketError,
    Message,
    OversizePacketError,
    PacketLimits,
)
from broker.embedded.refusals import Reason, Refusals
from broker.embedded.settings import ServerSettings
from broker.embedded.tls import share_buffer
from broker.embedded.websocket import HandshakeError, WebsocketWire
from broker.embedded.wire import LeftError, Wire
from broker.errors import ConfigError, plain
from broker.topics import Topics

MAX_CLIENT_ID_CHARS: Final = 256
PROTOCOL_LEVEL: Final = 4  # MQTT 3.1.1
BAD_PACKET: Final = (AMQTTError, MQTTError, NoDataError, CodecError, ValueError, struct.error)


class RefusedError(Exception):
    """Somebody is not let in. With a code, a CONNACK says so."""

    def __init__(self, reason: Reason, detail: str, code: int | None = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.code = code


class Entrance:
    """Lets connections in or refuses them, each within a deadline."""

    def __init__(
        self,
        settings: ServerSettings,
        identity: Identity | None,
        doors: Doors,
        refusals: Refusals,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._doors = doors
        self._refusals = refusals
        self._topics = Topics(settings.topic_root)
        self._limits = PacketLimits(
            settings.max_connect_bytes, settings.max_packet_bytes, settings.max_control_bytes
        )
        self._waiting: set[asyncio.StreamWriter] = set()

    async def admit(
        self, line: Line, writer: asyncio.StreamWriter, *, websocket: bool
    ) -> Arrival | None:
        """Return who came in, counted in; or none, closed and counted as refused.

        Who leaves without a word is none, either, and was refused nothing: monitors and balancers
        of load look like that whether somebody listens, and so does `fleet doctor`.

        Nothing may wait before TLS starts: what the client says first is not for this reader.
        """
        address = str((writer.get_extra_info("peername") or ("nowhere",))[0])
        if not self._doors.knock(address):
            self._refusals.add(Reason.CROWD, f"one more connection from {address}")
            writer.transport.abort()
            return None
        self._waiting.add(writer)
        wire = WebsocketWire(line, writer, self._settings) if websocket else Wire(line, writer)
        arrival: Arrival | None = None
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                arrival = await self._meet(writer, wire)
        except TimeoutError:
            limit_s = self._settings.connect_timeout_s
            self._refusals.add(Reason.TIMEOUT, f"{address}: no CONNECT in {limit_s:.0f} s")
        except RefusedError as refused:
            self._refusals.add(refused.reason, f"{address}: {refused}")
            await self._say(wire, refused.code)
        except LeftError:
            pass
        finally:
            if arrival is None:
                writer.transport.abort()
            self._waiting.discard(writer)
            self._doors.let_go(address)
        return arrival

    def close(self) -> None:
        """Let go of all that wait."""
        for writer in self._waiting:
            writer.transport.abort()

    async def _say(self, wire: Wire, code: int | None) -> None:
        if code is not None:
            with contextlib.suppress(OSError):
                wire.write(bytes((0x20, 2, 0, code)))
        await wire.close()

    async def _meet(self, writer: asyncio.StreamWriter, wire: Wire) -> Arrival:
        certificate = await self._handshake(writer)
        wire.secured()
        try:
            await wire.open()
        except (HandshakeError, OSError) as error:
            raise RefusedError(Reason.WEBSOCKET, _words(error)) from None
        cutter = Cutter(self._limits)
        connect = await self._read_connect(cutter, wire)
        guest, gate = self._recognise(certificate)
        session = _session(connect, guest)
        _check_session(session, gate)
        name = guest.principal.name if guest is not None else ""
        if not self._doors.enter(name):
            raise RefusedError(Reason.CROWD, f"one more connection of {name!r}", SERVER_UNAVAILABLE)
        return Arrival(name, guest, gate, session, cutter, wire)

    async def _handshake(self, writer: asyncio.StreamWriter) -> bytes | None:
        """Start TLS and return the client's certificate, found good; none without an identity."""
        if self._identity is None:
            return None
        try:
            await writer.start_tls(self._identity.context)
            share_buffer(asyncio.get_running_loop(), writer.transport)
            tls = writer.get_extra_info("ssl_object")
            certificate: bytes | None = tls.getpeercert(binary_form=True)
        except ConnectionError:  # the client's doing: what OpenSSL refuses is another error
            raise LeftError from None
        except OSError as error:  # of which those of TLS are a kind
            raise RefusedError(Reason.TLS, _words(error)) from None
        if certificate is None:
            raise RefusedError(Reason.TLS, "no certificate")
        return certificate

    async def _read_connect(self, cutter: Cutter, wire: Wire) -> ConnectPacket:
        data = b""
        try:
            while (found := cutter.next()) is None:
                heard, data = bool(data), await wire.read()
                if not data and not heard:
                    raise LeftError
                if not data:
                    raise RefusedError(Reason.CONNECT, "the connection ended before its CONNECT")
                cutter.feed(data)
                cutter.expect(CONNECT)
        except OversizePacketError as error:
            raise RefusedError(Reason.OVERSIZE, str(error)) from None
        except MalformedPacketError as error:
            raise RefusedError(Reason.MALFORMED, str(error)) from None
        except OSError as error:
            raise RefusedError(Reason.CONNECT, _words(error)) from None
        return await _decode_connect(*found)

    def _recognise(self, certificate: bytes | None) -> tuple[Guest | None, Gate | None]:
        """Return whose certificate it is, and their rights: the user name has no say."""
        if self._identity is None or certificate is None:
            return None, None
        try:
            guest = self._identity.guest(certificate)
        except (ConfigError, ValueError) as error:
            raise RefusedError(Reason.NOBODY, str(error), NOT_AUTHORIZED) from None
        if self._identity.is_revoked(guest):
            name = guest.principal.name
            raise RefusedError(
                Reason.REVOKED, f"the certificate of {name!r} was revoked", NOT_AUTHORIZED
            )
        return guest, Gate(rights_of(guest.principal, self._topics))


class _Body(BufferReader):
    """The bytes of a CONNECT, for amqtt's decoder, which bears that there are too few."""

    def __init__(self, buffer: Bytes) -> None:
        super().__init__(bytes(buffer))
        self._short = False

    async def read(self, n: int = -1) -> bytes:
        data = bytes(await super().read(n))
        self._short = self._short or len(data) < n
        return data

    @property
    def fitted(self) -> bool:
        """Whether it was read to its end, and no further."""
        return not self._short and not self._stream.read(1)


async def _decode_connect(first: int, data: Bytes) -> ConnectPacket:
    """Return a CONNECT that keeps to MQTT 3.1.1 (3.1). Raises `RefusedError`, some with a code."""
    body = _Body(data)
    header = MQTTFixedHeader(first >> 4, first & 0x0F, len(data))
    try:
        packet = await ConnectPacket.from_stream(body, fixed_header=header)
    except BAD_PACKET as error:
        raise RefusedError(Reason.CONNECT, _words(error)) from None
    flags, said = packet.variable_header, packet.payload
    if flags is None or said is None or flags.reserved_flag:
        raise RefusedError(Reason.CONNECT, "a CONNECT that is none")
    if packet.proto_name != "MQTT":
        raise RefusedError(Reason.CONNECT, f"protocol {packet.proto_name!r}, not 'MQTT'")
    if packet.proto_level != PROTOCOL_LEVEL:
        raise RefusedError(
            Reason.CONNECT, f"protocol level {packet.proto_level}", UNACCEPTABLE_PROTOCOL_VERSION
        )
    missing = (packet.username_flag and packet.username is None) or (
        packet.password_flag and (packet.password is None or not packet.username_flag)
    )
    if missing:
        raise RefusedError(Reason.CONNECT, "a password without a user", BAD_USERNAME_PASSWORD)
    if packet.client_id_is_random and not packet.clean_session_flag:
        raise RefusedError(
            Reason.CONNECT, "no client id, for a session to be kept", IDENTIFIER_REJECTED
        )
    if packet.will_flag and (said.will_topic is None or said.will_message is None):
        raise RefusedError(Reason.CONNECT, "a will that is none")
    if not body.fitted:
        raise RefusedError(Reason.MALFORMED, "a CONNECT that is not as long as it says")
    return packet


def _session(connect: ConnectPacket, guest: Guest | None) -> Session:
    """Return what a CONNECT asks for. Every session is a clean one: nothing is kept for later."""
    client_id = str(connect.client_id)
    if guest is not None:
        # Everybody has client ids of their own: nobody can take another's, or keep it taken.
        client_id = f"{guest.principal.name}/{client_id}"
    will = None
    if connect.will_flag:
        will = Message(connect.will_topic or "", bytes(connect.will_message), connect.will_qos)
    return Session(client_id, max(connect.keep_alive, 0), will, bool(connect.will_retain_flag))


def _check_session(session: Session, gate: Gate | None) -> None:
    """Refuse a client id that is too long, and a will that is not one or not within the rights."""
    if len(session.client_id) > MAX_CLIENT_ID_CHARS:
        raise RefusedError(Reason.CONNECT, "a client id that is too long", IDENTIFIER_REJECTED)
    if session.will is None:
        return
    topic = session.will.topic
    if not topic or {"+", "#", "\0"} & set(topic) or session.will.qos not in {0, 1, 2}:
        raise RefusedError(Reason.CONNECT, f"a will to {topic!r}")
    if not may_publish(gate, topic):
        raise RefusedError(
            Reason.WILL, f"{session.client_id!r} may not have a will to {topic!r}", NOT_AUTHORIZED
        )


def _words(error: Exception) -> str:
    """Return what is wrong, of OpenSSL's without where in its source."""
    found = getattr(error, "verify_message", "") or getattr(error, "reason", "")
    return str(found or plain(error))
