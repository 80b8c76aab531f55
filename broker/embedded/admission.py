"""Admit connections: TLS, the certificate and the CONNECT, before any session is touched."""

from __future__ import annotations

import asyncio
import contextlib

from broker.embedded.channel import Channel, LeftError
from broker.embedded.connect import Connect, read_connect
from broker.embedded.limits import Doors, Reason, Refusals
from broker.embedded.packets import Kind, connack
from broker.embedded.reason_codes import Code, PacketError, RefusedError
from broker.embedded.routing import may_publish
from broker.embedded.session import Client
from broker.embedded.settings import ServerSettings
from broker.embedded.tls import Guest, Identity
from broker.embedded.websocket import WebsocketChannel
from broker.errors import ConfigError, plain
from broker.protocol.acl import Rights, rights_of
from broker.protocol.topics import Topics

MAX_CLIENT_ID_CHARS = 256


class Admission:
    """Admits connections or refuses them, each within a deadline."""

    def __init__(
        self, settings: ServerSettings, identity: Identity | None, refusals: Refusals
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._doors = Doors(settings)
        self._refusals = refusals
        self._topics = Topics(settings.topic_root)
        self._waiting: set[asyncio.StreamWriter] = set()

    async def admit(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, websocket: bool
    ) -> Client | None:
        """Return the client, counted in, or none: it was refused and counted, or left at once.

        Monitors and load balancers leave without a word, and so does `fleet doctor`. Nothing may
        be awaited before TLS starts: what the client says first is not for `reader`.
        """
        address = str((writer.get_extra_info("peername") or ("nowhere",))[0])
        if not self._doors.knock(address):
            self._refusals.add(Reason.CROWD, f"one more connection from {address}")
            writer.transport.abort()
            return None
        self._waiting.add(writer)
        channel = (
            WebsocketChannel(reader, writer, self._settings)
            if websocket
            else Channel(reader, writer)
        )
        client: Client | None = None
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                client = await self._meet(writer, channel)
        except TimeoutError:
            limit_s = self._settings.connect_timeout_s
            self._refusals.add(Reason.TIMEOUT, f"{address}: no CONNECT in {limit_s:.0f} s")
        except RefusedError as refused:
            self._refusals.add(refused.reason, f"{address}: {refused}")
            await self._refuse(channel, refused)
        except LeftError:
            pass
        finally:
            if client is None:
                writer.transport.abort()
            self._waiting.discard(writer)
            self._doors.let_go(address)
        return client

    def leave(self, client: Client) -> None:
        """Count a client out."""
        self._doors.leave(client.name)

    def close(self) -> None:
        """End the connections that are not admitted yet."""
        for writer in self._waiting:
            writer.transport.abort()

    async def _refuse(self, channel: Channel, refused: RefusedError) -> None:
        packet = b"" if refused.code is None else connack(refused.level, refused.code)
        if packet:
            with contextlib.suppress(OSError):
                channel.write(packet)
        await channel.close()

    async def _meet(self, writer: asyncio.StreamWriter, channel: Channel) -> Client:
        certificate = await self._handshake(writer)
        asked = await self._read_connect(channel)
        try:
            guest = self._recognise(certificate)
            name = guest.principal.name if guest is not None else ""
            rights = rights_of(guest.principal, self._topics) if guest is not None else None
            self._limit(asked, name)
            _check_will(asked, rights)
            self._enter(name)
        except RefusedError as refused:
            refused.level = asked.level
            raise
        return Client(channel, asked, name, rights, guest)

    async def _handshake(self, writer: asyncio.StreamWriter) -> bytes | None:
        """Start TLS and return the client's certificate, which is valid; none without TLS."""
        if self._identity is None:
            return None
        try:
            await writer.start_tls(self._identity.context)
            tls = writer.get_extra_info("ssl_object")
            certificate: bytes | None = tls.getpeercert(binary_form=True)
        except ConnectionError:  # the client left; OpenSSL's refusals are other errors
            raise LeftError from None
        except OSError as error:  # ssl.SSLError is one
            raise RefusedError(Reason.TLS, _words(error)) from None
        if certificate is None:
            raise RefusedError(Reason.TLS, "no certificate")
        return certificate

    async def _read_connect(self, channel: Channel) -> Connect:
        channel.limit_of = self._limit_of_connect
        why = "the connection ended before its CONNECT"
        try:
            await channel.open()
            found = await channel.packet()
        except PacketError as error:
            raise RefusedError(error.reason, str(error)) from None
        except OSError as error:
            found, why = None, _words(error)
        if found is not None:
            return read_connect(*found)
        if channel.unread_bytes:
            raise RefusedError(Reason.CONNECT, why)
        raise LeftError

    def _limit_of_connect(self, kind: int) -> int:
        if kind != Kind.CONNECT:
            raise PacketError(f"packet type {kind}, not a CONNECT")
        return min(self._settings.max_connect_bytes, self._settings.max_packet_bytes)

    def _recognise(self, certificate: bytes | None) -> Guest | None:
        """Return whose certificate it is; the user name in the CONNECT does not matter."""
        if self._identity is None or certificate is None:
            return None
        try:
            guest = self._identity.guest(certificate)
        except (ConfigError, ValueError) as error:
            raise RefusedError(Reason.NOBODY, str(error), Code.NOT_AUTHORIZED) from None
        if self._identity.is_revoked(guest):
            detail = f"the certificate of {guest.principal.name!r} was revoked"
            raise RefusedError(Reason.REVOKED, detail, Code.NOT_AUTHORIZED)
        return guest

    def _enter(self, name: str) -> None:
        if not self._doors.enter(name):
            detail = f"one more connection of {name!r}"
            raise RefusedError(Reason.CROWD, detail, Code.QUOTA_EXCEEDED)

    def _limit(self, asked: Connect, name: str) -> None:
        """Bound what is asked for. Each name has client ids of its own, safe from the others."""
        if name:
            asked.client_id = f"{name}/{asked.client_id}"
        asked.expiry_s = min(asked.expiry_s, self._settings.max_session_s)
        if len(asked.client_id) > MAX_CLIENT_ID_CHARS:
            detail = "a client id that is too long"
            raise RefusedError(Reason.CONNECT, detail, Code.CLIENT_ID_INVALID)


def _check_will(asked: Connect, rights: Rights | None) -> None:
    """Refuse a will that is not valid or not within the rights."""
    if asked.will is None:
        return
    topic = asked.will.topic
    if not topic or {"+", "#"} & set(topic) or asked.will.qos > 2:
        raise RefusedError(Reason.CONNECT, f"a will to {topic!r}", Code.TOPIC_INVALID)
    if not may_publish(rights, topic):
        detail = f"{asked.client_id!r} may not have a will to {topic!r}"
        raise RefusedError(Reason.WILL, detail, Code.NOT_AUTHORIZED)


def _words(error: Exception) -> str:
    """Return what is wrong, of OpenSSL's errors without the place in its source."""
    found = getattr(error, "verify_message", "") or getattr(error, "reason", "")
    return str(found or plain(error))
