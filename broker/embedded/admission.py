"""Admit connections: TLS, the certificate and the CONNECT, before any session is touched."""

from __future__ import annotations

import asyncio
from collections import Counter

from broker.embedded.channel import Channel, LeftError
from broker.embedded.connect import Connect
from broker.embedded.limits import Reason, Refusals
from broker.embedded.packets import Code, Kind, RefusedError, connack
from broker.embedded.routing import may_publish
from broker.embedded.session import Client
from broker.embedded.settings import ServerSettings
from broker.embedded.tls import Guest, Identity
from broker.errors import ConfigError, plain
from broker.protocol.acl import Rights, rights_of
from broker.protocol.topics import Topics
from broker.system.address import machine_of

MAX_CLIENT_ID_CHARS = 256


class Admission:
    """Admits connections or refuses them, each within a deadline; counts those it has."""

    def __init__(
        self, settings: ServerSettings, identity: Identity | None, refusals: Refusals
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._refusals = refusals
        self._topics = Topics(settings.topic_root)
        self._waiting: set[Channel] = set()
        self._by_machine: Counter[str] = Counter()  # those that wait
        self._inside: Counter[str] = Counter()  # by the name in the certificate

    async def admit(self, channel: Channel) -> Client | None:
        """Return the client, counted in, or none: it was refused and counted, or left at once.

        Monitors and load balancers leave without a word, and so does `fleet doctor`. Nothing may
        be awaited before TLS starts: what the client says first is not for `channel`.
        """
        machine = machine_of(channel.address)
        if not self._has_room(machine):
            self._refusals.add(Reason.CROWD, f"one more connection from {channel.address}")
            channel.cut()
            return None
        self._waiting.add(channel)
        self._by_machine[machine] += 1
        limit_s, asked = self._settings.connect_timeout_s, Connect()
        client: Client | None = None
        try:
            async with asyncio.timeout(limit_s):
                client = await self._meet(channel, asked)
        except TimeoutError:
            self._refusals.add(Reason.TIMEOUT, f"{channel.address}: no CONNECT in {limit_s:.0f} s")
        except RefusedError as refused:
            self._refusals.add(refused.reason, f"{channel.address}: {refused}")
            if packet := connack(asked.level, refused.code):
                channel.write(packet)
            await channel.close()
        except LeftError:
            pass
        finally:
            if client is None:
                channel.cut()
            self._waiting.discard(channel)
            _less(self._by_machine, machine)
        return client

    def leave(self, client: Client) -> None:
        """Count a client out."""
        _less(self._inside, client.name)

    def close(self) -> None:
        """End the connections that are not admitted yet."""
        for channel in self._waiting:
            channel.cut()

    def _has_room(self, machine: str) -> bool:
        """Tell whether one more may wait; without an identity all connections count alike."""
        limits, waiting = self._settings, len(self._waiting)
        if waiting + self._inside.total() >= limits.max_connections:
            return False
        return limits.identity is None or (
            waiting < limits.max_waiting
            and self._by_machine[machine] < limits.max_waiting_per_address
        )

    async def _meet(self, channel: Channel, asked: Connect) -> Client:
        certificate = await self._handshake(channel)
        await self._read_connect(channel, asked)
        guest = self._recognise(certificate)
        name = guest.principal.name if guest is not None else ""
        rights = rights_of(guest.principal, self._topics) if guest is not None else None
        # Each name has client ids of its own, safe from the others.
        asked.client_id = f"{name}/{asked.client_id}" if name else asked.client_id
        if len(asked.client_id) > MAX_CLIENT_ID_CHARS:
            raise RefusedError(
                "a client id that is too long", Code.CLIENT_ID_INVALID, Reason.CONNECT
            )
        asked.expiry_s = min(asked.expiry_s, self._settings.max_session_s)
        _check_will(asked, rights)
        if name and self._inside[name] >= self._settings.max_connections_per_name:
            detail = f"one more connection of {name!r}"
            raise RefusedError(detail, Code.QUOTA_EXCEEDED, Reason.CROWD)
        self._inside[name] += 1
        return Client(channel, asked, name, rights, guest)

    async def _handshake(self, channel: Channel) -> bytes | None:
        """Start TLS and return the client's certificate, which is valid; none without TLS."""
        if self._identity is None:
            return None
        try:
            certificate = await channel.start_tls(self._identity.context)
        except ConnectionError:  # the client left; OpenSSL's refusals are other errors
            raise LeftError from None
        except OSError as error:  # ssl.SSLError is one
            # Of OpenSSL's errors, without the place in its source.
            found = getattr(error, "verify_message", "") or getattr(error, "reason", "")
            raise RefusedError(str(found or plain(error)), reason=Reason.TLS) from None
        if certificate is None:
            raise RefusedError("no certificate", reason=Reason.TLS)
        return certificate

    async def _read_connect(self, channel: Channel, asked: Connect) -> None:
        channel.limit_of = self._limit_of_connect
        await channel.open()
        if (found := await channel.packet()) is not None:
            asked.read(*found)
        elif channel.unread_bytes:
            raise RefusedError("the connection ended before its CONNECT", reason=Reason.CONNECT)
        else:
            raise LeftError

    def _limit_of_connect(self, kind: int) -> int:
        if kind != Kind.CONNECT:
            raise RefusedError(f"packet type {kind}, not a CONNECT")
        return min(self._settings.max_connect_bytes, self._settings.max_packet_bytes)

    def _recognise(self, certificate: bytes | None) -> Guest | None:
        """Return whose certificate it is; the user name in the CONNECT does not matter."""
        if self._identity is None or certificate is None:
            return None
        try:
            guest = self._identity.guest(certificate)
        except (ConfigError, ValueError) as error:
            raise RefusedError(str(error), Code.NOT_AUTHORIZED, Reason.NOBODY) from None
        if self._identity.is_revoked(guest):
            detail = f"the certificate of {guest.principal.name!r} was revoked"
            raise RefusedError(detail, Code.NOT_AUTHORIZED, Reason.REVOKED)
        return guest


def _check_will(asked: Connect, rights: Rights | None) -> None:
    """Refuse a will that is not valid or not within the rights."""
    if asked.will is None:
        return
    topic = asked.will.topic
    if not topic or {"+", "#"} & set(topic) or asked.will.qos > 2:
        raise RefusedError(f"a will to {topic!r}", Code.TOPIC_INVALID, Reason.CONNECT)
    if not may_publish(rights, topic):
        detail = f"{asked.client_id!r} may not have a will to {topic!r}"
        raise RefusedError(detail, Code.NOT_AUTHORIZED, Reason.WILL)


def _less(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
