"""The embedded broker: its listeners, and each client from its arrival to its end."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final

from amqtt.broker import Broker
from amqtt.contexts import BrokerConfig, ListenerType
from amqtt.errors import BrokerError

from broker.embedded.admission import Admission
from broker.embedded.channel import Channel
from broker.embedded.conversation import Conversation
from broker.embedded.limits import Reason
from broker.embedded.message import Message
from broker.embedded.packets import Code, Kind, RefusedError
from broker.embedded.routing import Router
from broker.embedded.session import Client, Session
from broker.embedded.settings import ServerSettings
from broker.embedded.tls import Identity
from broker.embedded.websocket import WebsocketChannel
from broker.errors import LinkError
from broker.protocol.messages import BrokerRefusals, encode
from broker.protocol.topics import Topics
from broker.system.address import why_not_here

log = logging.getLogger("fleet.broker")

WATCH_EVERY_S: Final = 0.5
TELL_EVERY_S: Final = 2.0
WEBSOCKET: Final = "websocket"  # the listener's name
BACKLOG: Final = 4_096  # connections that are not accepted yet: a fleet comes back at once


class EmbeddedBroker(Broker):
    """amqtt's listeners, and this package's MQTT behind them.

    amqtt 0.12.1 speaks no MQTT 5, knows no limits, and sends a message to whoever matches an access
    list level by level. So its connections are handed over before it reads anything.
    """

    def __init__(self, settings: ServerSettings) -> None:
        """Prepare a broker for the running event loop. Raises `ConfigError` for a bad identity."""
        # At ERROR amqtt logs tracebacks of what is reported better here.
        logging.getLogger("amqtt").setLevel(logging.CRITICAL)
        logging.getLogger("transitions").setLevel(logging.ERROR)
        ports = {"default": settings.port}
        if settings.websocket is not None:
            ports[WEBSOCKET] = settings.websocket
        listeners = {
            name: {"type": "tcp", "bind": f"{settings.host}:{port}"} for name, port in ports.items()
        }
        super().__init__(BrokerConfig.from_dict({"listeners": listeners, "plugins": {}}))
        self._settings = settings
        self._identity = Identity(settings.identity) if settings.identity is not None else None
        self.router = Router(settings, self._loop.time)
        self._refusals = self.router.refusals
        self._admission = Admission(settings, self._identity, self._refusals)
        self._watchers: list[asyncio.Task[None]] = []

    @property
    def port(self) -> int:
        """The port it listens on, once started."""
        return self._port_of("default")

    @property
    def websocket_port(self) -> int | None:
        """The port of websockets, once started; none where there is none."""
        return self._port_of(WEBSOCKET) if WEBSOCKET in self._servers else None

    @property
    def refused(self) -> dict[Reason, int]:
        """How much was refused since the start, by reason."""
        return self._refusals.counts

    def _port_of(self, listener: str) -> int:
        sockets = self._servers[listener].instance.sockets
        return int(next(iter(sockets)).getsockname()[1])

    async def start(self) -> None:
        """Start to serve. Raises `LinkError` when it cannot listen."""
        try:
            await super().start()
        except BrokerError as error:
            settings, cause = self._settings, error.__cause__
            more = f" and {settings.websocket}" if settings.websocket is not None else ""
            why = cause.strerror or str(cause) if isinstance(cause, OSError) else str(error)
            raise LinkError(
                f"cannot listen on {settings.host}:{settings.port}{more}: {why}; "
                f"{why_not_here(cause)}"
            ) from None
        self._watchers = [asyncio.create_task(one) for one in (self._watch(), self._tell_refused())]

    async def shutdown(self) -> None:
        """End all connections at once, and stop."""
        self.router.is_stopping = True
        for watcher in self._watchers:
            watcher.cancel()
        self._admission.close()
        clients = list(self.router.connected.values())
        for one in clients:
            one.tell_end(Code.SHUTTING_DOWN)
        await asyncio.gather(*(one.channel.close() for one in clients))
        await super().shutdown()

    async def _create_server_instance(
        self,
        listener_name: str,
        listener_type: ListenerType,  # noqa: ARG002 - all are TCP
        address: str | None,
        port: int,
        ssl_context: ssl.SSLContext | None,  # noqa: ARG002 - see Admission
    ) -> asyncio.Server:
        """Replaces amqtt's whole handling of connections."""
        if listener_name == WEBSOCKET:
            make: Callable[[], Channel] = partial(WebsocketChannel, self._serve, self._settings)
        else:
            make = partial(Channel, self._serve)
        return await self._loop.create_server(
            make, address, port, reuse_address=True, backlog=BACKLOG
        )

    async def _serve(self, channel: Channel) -> None:
        client = await self._admission.admit(channel)
        if client is None:
            return
        client.last_s = self._loop.time()
        channel.limit_of, channel.on_received = self._limit_of, self.router.queued
        try:
            session, present = self.router.enter(client)
            client.answer(client.asked.accepted(self._settings, present=present))
            session.send_waiting()
            await self._attend(session, client)
        finally:
            self._admission.leave(client)
            channel.cut()

    def _limit_of(self, kind: int) -> int:
        most_bytes, other_bytes = self._settings.max_packet_bytes, self._settings.max_control_bytes
        return most_bytes if kind == Kind.PUBLISH else min(most_bytes, other_bytes)

    async def _attend(self, session: Session, client: Client) -> None:
        goodbye = False
        try:
            goodbye = await Conversation(self.router, session, client).run()
        except RefusedError as error:
            self._refusals.add(error.reason, f"client {session.id!r}: {error}")
            client.tell_end(error.code)
        except OSError:
            pass  # the connection broke off
        except Exception as error:
            log.exception("client %r: a packet could not be handled", session.id)
            self._refusals.add(Reason.MALFORMED, f"client {session.id!r}: {error}")
            client.tell_end(Code.IMPLEMENTATION_ERROR)
        finally:
            self.router.leave(session, client, goodbye=goodbye)
        if goodbye:
            await client.channel.close()

    async def _watch(self) -> None:
        """Look after the identity and the connections."""
        while True:
            begun_s = self._loop.time()
            await asyncio.sleep(WATCH_EVERY_S)
            late_s = self._loop.time() - begun_s - WATCH_EVERY_S
            try:
                self._look_round(late_s)
            except Exception:
                log.exception("could not look after the connections")

    def _look_round(self, late_s: float) -> None:
        """End whoever may not stay. For `late_s` the broker stood still: nobody was silent then."""
        if self._identity is not None:
            self._identity.refresh()
        now_s, wall = self._loop.time(), datetime.now(UTC)
        for session in list(self.router.sessions.values()):
            client = session.client
            if client is None:
                continue
            client.last_s += late_s
            if self._identity and client.guest and self._identity.is_revoked(client.guest):
                self._count_end(Reason.REVOKED, session)
                session.drop(Code.ADMINISTRATIVE)
            elif client.guest and wall > client.guest.not_after:
                self._count_end(Reason.EXPIRED, session)
                session.drop(Code.NOT_AUTHORIZED)
            elif client.is_silent(now_s):
                self._count_end(Reason.SILENT, session)
                client.end(Code.KEEPALIVE_TIMEOUT)
        self.router.look_after_kept(now_s)

    def _count_end(self, reason: Reason, session: Session) -> None:
        self._refusals.add(reason, f"client {session.id!r} was disconnected")

    async def _tell_refused(self) -> None:
        """Publish what was refused, when it changes."""
        topic = Topics(self._settings.topic_root).broker_refused()
        told: Counter[Reason] = Counter()
        while True:
            if (counts := self._refusals.counts) != told:
                told = counts.copy()
                refused = {reason.value: count for reason, count in told.items()}
                message = Message(topic, encode(BrokerRefusals(refused=refused)), 1)
                self.router.send(message)
                self.router.retain("", message)
            await asyncio.sleep(TELL_EVERY_S)
