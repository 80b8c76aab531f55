"""Who comes in: TLS, the certificate, and the CONNECT, all of it before any session is touched.

Replaces: amqtt asks who somebody is after it has deleted the session that has the same client id,
so that a refused CONNECT silences whoever bears that id; it waits for ever for a CONNECT; it takes
any will; and the name that its access lists see is one that the client has chosen.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from amqtt.mqtt.connack import (
    IDENTIFIER_REJECTED,
    NOT_AUTHORIZED,
    SERVER_UNAVAILABLE,
    ConnackPacket,
)
from amqtt.mqtt.packet import CONNECT
from amqtt.session import Session

from broker.acl import Rights, rights_of
from broker.embedded.client import Arrival, Handler, Wire
from broker.embedded.doors import Doors
from broker.embedded.identity import Guest, Identity
from broker.embedded.packets import (
    BAD_PACKET,
    Body,
    MalformedPacketError,
    OversizePacketError,
    PacketLimits,
    PacketReader,
    Source,
)
from broker.embedded.refusals import Reason, Refusals
from broker.embedded.settings import ServerSettings
from broker.embedded.websocket import HandshakeError, WebsocketWire
from broker.errors import ConfigError
from broker.topics import Topics

MAX_CLIENT_ID_CHARS: Final = 256


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
        plugins_manager: Any,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._doors = doors
        self._refusals = refusals
        self._plugins_manager = plugins_manager
        self._topics = Topics(settings.topic_root)
        self._limits = PacketLimits(
            settings.max_connect_bytes, settings.max_packet_bytes, settings.max_control_bytes
        )
        self._waiting: set[asyncio.StreamWriter] = set()

    async def admit(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, websocket: bool
    ) -> Arrival | None:
        """Return who came in, counted in; or none, closed and counted as refused.

        Nothing may wait before TLS starts: what the client says first is not for this reader.
        """
        address = str((writer.get_extra_info("peername") or ("nowhere",))[0])
        if not self._doors.knock(address):
            self._refusals.add(Reason.CROWD, f"one more connection from {address}")
            writer.transport.abort()
            return None
        self._waiting.add(writer)
        wire = WebsocketWire(writer, self._settings) if websocket else Wire(writer)
        arrival: Arrival | None = None
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                arrival = await self._meet(reader, writer, wire)
        except TimeoutError:
            limit_s = self._settings.connect_timeout_s
            self._refusals.add(Reason.TIMEOUT, f"{address}: no CONNECT in {limit_s:.0f} s")
        except RefusedError as refused:
            self._refusals.add(refused.reason, f"{address}: {refused}")
            await self._say(wire, refused.code)
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
                wire.write(ConnackPacket.build(0, code).to_bytes())
        await wire.close()

    async def _meet(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wire: Wire
    ) -> Arrival | None:
        certificate = await self._handshake(writer)
        packets = PacketReader(await _source(reader, wire), self._limits)
        session, handler = await self._read_connect(packets, wire)
        guest, rights = self._recognise(certificate)
        _check_session(session, rights)
        name = ""
        if guest is not None:
            name = guest.principal.name
            # Everybody has client ids of their own: nobody can take another's, or keep it taken.
            session.client_id = f"{name}/{session.client_id}"
        session.username, session.password = name, None
        if not self._doors.enter(name):
            raise RefusedError(Reason.CROWD, f"one more connection of {name!r}", SERVER_UNAVAILABLE)
        session.clean_session = True  # nothing is kept for anybody who is away
        session.is_anonymous = guest is None
        handler.attach(session, packets, wire)
        return Arrival(name, guest, rights, session, handler, packets, wire)

    async def _handshake(self, writer: asyncio.StreamWriter) -> bytes | None:
        """Start TLS and return the client's certificate, found good; none without an identity."""
        if self._identity is None:
            return None
        try:
            await writer.start_tls(self._identity.context)
            tls = writer.get_extra_info("ssl_object")
            certificate: bytes | None = tls.getpeercert(binary_form=True)
        except OSError as error:  # of which those of TLS are a kind
            raise RefusedError(Reason.TLS, _reason(error)) from None
        if certificate is None:
            raise RefusedError(Reason.TLS, "no certificate")
        return certificate

    async def _read_connect(self, packets: PacketReader, wire: Wire) -> tuple[Session, Handler]:
        try:
            frame = await packets.frame(only=CONNECT)
        except OversizePacketError as error:
            raise RefusedError(Reason.OVERSIZE, str(error)) from None
        except MalformedPacketError as error:
            raise RefusedError(Reason.MALFORMED, str(error)) from None
        if frame is None:
            raise RefusedError(Reason.CONNECT, "the connection ended before its CONNECT")
        body = Body(frame.header.to_bytes() + frame.body)
        try:
            handler, session = await Handler.init_from_connect(body, wire, self._plugins_manager)
        except BAD_PACKET as error:
            raise RefusedError(Reason.CONNECT, str(error)) from None
        if not body.fitted:
            raise RefusedError(Reason.MALFORMED, "a CONNECT that is not as long as it says")
        return session, handler

    def _recognise(self, certificate: bytes | None) -> tuple[Guest | None, Rights | None]:
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
        return guest, rights_of(guest.principal, self._topics)


async def _source(reader: asyncio.StreamReader, wire: Wire) -> Source:
    if not isinstance(wire, WebsocketWire):
        return reader
    try:
        return await wire.open(reader)
    except (HandshakeError, OSError) as error:
        raise RefusedError(Reason.WEBSOCKET, str(error)) from None


def _check_session(session: Session, rights: Rights | None) -> None:
    """Refuse a client id that is too long, and a will that is not one or not within the rights."""
    if len(session.client_id or "") > MAX_CLIENT_ID_CHARS:
        raise RefusedError(Reason.CONNECT, "a client id that is too long", IDENTIFIER_REJECTED)
    if not session.will_flag:
        return
    topic = session.will_topic or ""
    if not topic or {"+", "#", "\0"} & set(topic) or session.will_qos not in {0, 1, 2}:
        raise RefusedError(Reason.CONNECT, f"a will to {topic!r}")
    if rights is not None and not rights.may_publish(topic):
        raise RefusedError(
            Reason.WILL, f"{session.client_id!r} may not have a will to {topic!r}", NOT_AUTHORIZED
        )


def _reason(error: OSError) -> str:
    """Return what OpenSSL found wrong, without where in its source it did."""
    return str(getattr(error, "verify_message", "") or getattr(error, "reason", "") or error)
