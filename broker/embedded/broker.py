"""The embedded broker: its listeners, and each client from its arrival to its end."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final

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
from broker.protocol.messages import BrokerLoad, BrokerRefusals, encode
from broker.protocol.topics import Topics
from broker.system.address import why_not_here

log = logging.getLogger("fleet.broker")

WATCH_EVERY_S: Final = 0.5
TELL_EVERY_S: Final = 2.0
LOAD_EVERY_S: Final = 15.0
BACKLOG: Final = 4_096  # connections that are not accepted yet: a fleet comes back at once


class EmbeddedBroker:
    """The listeners, and each client that comes to one."""

    def __init__(self, settings: ServerSettings) -> None:
        """Prepare a broker for the running event loop. Raises `ConfigError` for a bad identity."""
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._identity = Identity(settings.identity) if settings.identity is not None else None
        self.router = Router(settings, self._loop.time)
        self._refusals = self.router.refusals
        self._admission = Admission(settings, self._identity, self._refusals)
        self._watchers: list[asyncio.Task[None]] = []
        self._listeners: list[asyncio.Server] = []  # MQTT's, and then that of websockets, if any

    @property
    def port(self) -> int:
        """The port it listens on, once started."""
        return _port_of(self._listeners[0])

    @property
    def websocket_port(self) -> int | None:
        """The port of websockets, once started; none where there is none."""
        return _port_of(self._listeners[1]) if self._listeners[1:] else None

    @property
    def refused(self) -> dict[Reason, int]:
        """How much was refused since the start, by reason."""
        return self._refusals.counts

    async def start(self) -> None:
        """Start to serve. Raises `LinkError` when it cannot listen."""
        settings = self._settings
        try:
            await self._listen(partial(Channel, self._serve), settings.port)
            if settings.websocket is not None:
                await self._listen(
                    partial(WebsocketChannel, self._serve, settings), settings.websocket
                )
        except OSError as error:
            more = f" and {settings.websocket}" if settings.websocket is not None else ""
            raise LinkError(
                f"cannot listen on {settings.host}:{settings.port}{more}: "
                f"{error.strerror or error}; {why_not_here(error)}"
            ) from None
        self._watchers = [asyncio.create_task(one) for one in (self._watch(), self._tell_state())]

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
        for listener in self._listeners:
            listener.close()
            await listener.wait_closed()

    async def _listen(self, make: Callable[[], Channel], port: int) -> None:
        self._listeners.append(
            await self._loop.create_server(
                make, self._settings.host, port, reuse_address=True, backlog=BACKLOG
            )
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
        """Look after the identity and the connections, and measure how busy the loop is."""
        while True:
            begun_s = self._loop.time()
            await asyncio.sleep(WATCH_EVERY_S)
            late_s = self._loop.time() - begun_s - WATCH_EVERY_S
            self.router.meter.tick(late_s)
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

    async def _tell_state(self) -> None:
        """Publish what was refused, when it changes, and the load, for `fleet status`."""
        topics = Topics(self._settings.topic_root)
        told: Counter[Reason] = Counter()
        load_due_s = self._loop.time() + LOAD_EVERY_S
        while True:
            if (counts := self._refusals.counts) != told:
                told = counts.copy()
                refused = {reason.value: count for reason, count in told.items()}
                self._state(topics.broker_refused(), BrokerRefusals(refused=refused), 1)
            if self._loop.time() >= load_due_s:
                load_due_s = self._loop.time() + LOAD_EVERY_S
                clients, most = len(self.router.connected), self._settings.max_connections
                self._state(topics.broker_load(), self.router.meter.load(clients, most), 0)
            await asyncio.sleep(TELL_EVERY_S)

    def _state(self, topic: str, what: BrokerRefusals | BrokerLoad, qos: int) -> None:
        message = Message(topic, encode(what), qos)
        self.router.send(message)
        self.router.retain("", message)


def _port_of(listener: asyncio.Server) -> int:
    return int(listener.sockets[0].getsockname()[1])
