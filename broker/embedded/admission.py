"""Who comes in: TLS, the certificate, and the CONNECT, all of it before any session is touched.

Replaces: amqtt asks who somebody is after it has deleted the session that has the same client id,
so that a refused CONNECT silences whoever bears that id; it waits for ever for a CONNECT; it takes
any will; and the name that its access lists see is one that the client has chosen.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Final

from amqtt.mqtt.packet import CONNECT

from broker.embedded.connect import read_connect, refusal
from broker.embedded.limits import Doors, Reason, Refusals
from broker.embedded.line import Line
from broker.embedded.packets import Cutter, PacketLimits
from broker.embedded.peer import Arrival, Gate, Session
from broker.embedded.reason_codes import (
    Code,
    MalformedPacketError,
    OversizePacketError,
    RefusedError,
)
from broker.embedded.routing import may_publish
from broker.embedded.settings import ServerSettings
from broker.embedded.tls import Guest, Identity, share_buffer
from broker.embedded.websocket import HandshakeError, WebsocketWire
from broker.embedded.wire import LeftError, Wire
from broker.errors import ConfigError, plain
from broker.protocol.acl import rights_of
from broker.protocol.topics import Topics

MAX_CLIENT_ID_CHARS: Final = 256


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
            await self._say(wire, refusal(refused))
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

    async def _say(self, wire: Wire, packet: bytes | None) -> None:
        if packet is not None:
            with contextlib.suppress(OSError):
                wire.write(packet)
        await wire.close()

    async def _meet(self, writer: asyncio.StreamWriter, wire: Wire) -> Arrival:
        certificate = await self._handshake(writer)
        wire.secured()
        try:
            await wire.open()
        except (HandshakeError, OSError) as error:
            raise RefusedError(Reason.WEBSOCKET, _words(error)) from None
        cutter = Cutter(self._limits)
        asked = await self._read_connect(cutter, wire)
        try:
            guest, gate = self._recognise(certificate)
            session = self._grant(asked, guest)
            _check_session(session, gate)
            name = self._enter(guest)
        except RefusedError as refused:
            refused.level = asked.level
            raise
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

    async def _read_connect(self, cutter: Cutter, wire: Wire) -> Session:
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
        return read_connect(*found)

    def _recognise(self, certificate: bytes | None) -> tuple[Guest | None, Gate | None]:
        """Return whose certificate it is, and their rights: the user name has no say."""
        if self._identity is None or certificate is None:
            return None, None
        try:
            guest = self._identity.guest(certificate)
        except (ConfigError, ValueError) as error:
            raise RefusedError(Reason.NOBODY, str(error), Code.NOT_AUTHORIZED) from None
        if self._identity.is_revoked(guest):
            name = guest.principal.name
            raise RefusedError(
                Reason.REVOKED, f"the certificate of {name!r} was revoked", Code.NOT_AUTHORIZED
            )
        return guest, Gate(rights_of(guest.principal, self._topics))

    def _enter(self, guest: Guest | None) -> str:
        name = guest.principal.name if guest is not None else ""
        if not self._doors.enter(name):
            detail = f"one more connection of {name!r}"
            raise RefusedError(Reason.CROWD, detail, Code.QUOTA_EXCEEDED)
        return name

    def _grant(self, asked: Session, guest: Guest | None) -> Session:
        """Return the session that somebody may have.

        Everybody has client ids of their own: nobody can take another's, or keep it taken.
        """
        own = f"{guest.principal.name}/" if guest is not None else ""
        expiry_s = min(asked.expiry_s, self._settings.max_session_s)
        return replace(asked, client_id=own + asked.client_id, expiry_s=expiry_s)


def _check_session(session: Session, gate: Gate | None) -> None:
    """Refuse a client id that is too long, and a will that is not one or not within the rights."""
    if len(session.client_id) > MAX_CLIENT_ID_CHARS:
        detail = "a client id that is too long"
        raise RefusedError(Reason.CONNECT, detail, Code.CLIENT_ID_INVALID)
    if session.will is None:
        return
    topic = session.will.topic
    if not topic or {"+", "#", "\0"} & set(topic) or session.will.qos not in {0, 1, 2}:
        raise RefusedError(Reason.CONNECT, f"a will to {topic!r}", Code.TOPIC_INVALID)
    if not may_publish(gate, topic):
        detail = f"{session.client_id!r} may not have a will to {topic!r}"
        raise RefusedError(Reason.WILL, detail, Code.NOT_AUTHORIZED)


def _words(error: Exception) -> str:
    """Return what is wrong, of OpenSSL's without where in its source."""
    found = getattr(error, "verify_message", "") or getattr(error, "reason", "")
    return str(found or plain(error))
