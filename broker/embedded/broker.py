"""The broker itself: its start and end, and each client from its arrival on."""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import ssl
from datetime import UTC, datetime
from functools import partial
from typing import Final, cast

from amqtt.contexts import BrokerConfig, ListenerType

from broker.embedded.admission import Entrance
from broker.embedded.connect import accepted
from broker.embedded.conversation import Conversation
from broker.embedded.conversation5 import Conversation5
from broker.embedded.limits import Doors, Reason
from broker.embedded.line import Line
from broker.embedded.outbox5 import Outbox5
from broker.embedded.packets import Message
from broker.embedded.peer import Client
from broker.embedded.reason_codes import Code, MalformedPacketError, OversizePacketError
from broker.embedded.sessions import Sessions
from broker.embedded.settings import ServerSettings
from broker.embedded.tls import Identity
from broker.errors import LinkError
from broker.protocol.messages import BrokerLoad, BrokerRefusals, encode
from broker.protocol.topics import Topics

log = logging.getLogger("fleet.broker")

AMQTT_VERSION: Final = "0.12.1"
WATCH_EVERY_S: Final = 0.5
TELL_EVERY_S: Final = 2.0
LOAD_EVERY_S: Final = 15.0
WEBSOCKET: Final = "websocket"  # the listener's name
BACKLOG: Final = 4_096  # connections that nobody has accepted yet
ENDED: Final = {  # by the broker, and what a client of MQTT 5 is told
    Reason.REVOKED: Code.ADMINISTRATIVE,
    Reason.EXPIRED: Code.NOT_AUTHORIZED,
    Reason.SILENT: Code.SILENT,
}


class EmbeddedBroker(Sessions):
    """amqtt's broker with the overrides of this package.

    Raises `LinkError` on another amqtt, `ConfigError` for an identity that is not usable.
    """

    def __init__(self, settings: ServerSettings) -> None:
        """Prepare a broker for the running event loop."""
        version = importlib.metadata.version("amqtt")
        if version != AMQTT_VERSION:
            raise LinkError(
                f"amqtt {version} is installed; the embedded broker is made for {AMQTT_VERSION}: "
                f"pip install amqtt=={AMQTT_VERSION}"
            )
        self._identity = Identity(settings.identity) if settings.identity is not None else None
        # No TLS for amqtt: it would wait for handshakes that nobody counts. Nor websockets.
        ports = {"default": settings.port}
        if settings.websocket_port is not None:
            ports[WEBSOCKET] = settings.websocket_port
        listeners = {
            name: {"type": "tcp", "bind": f"{settings.host}:{port}"} for name, port in ports.items()
        }
        super().__init__(settings, BrokerConfig.from_dict({"listeners": listeners, "plugins": {}}))
        self._doors = Doors(settings)
        self._entrance = Entrance(settings, self._identity, self._doors, self._refusals)
        self._watchers: list[asyncio.Task[None]] = []

    @property
    def port(self) -> int:
        """The port it listens on, once started."""
        return self._port_of("default")

    @property
    def websocket_port(self) -> int | None:
        """The port of websockets, once started; none where there is none."""
        return self._port_of(WEBSOCKET) if WEBSOCKET in self._servers else None

    def _port_of(self, listener: str) -> int:
        sockets = self._servers[listener].instance.sockets
        return int(next(iter(sockets)).getsockname()[1])

    async def start(self) -> None:
        """Start to serve, and to look after those who are connected."""
        await super().start()
        self._watchers = [asyncio.create_task(one) for one in (self._watch(), self._tell_state())]

    async def shutdown(self) -> None:
        """Replaces: amqtt ends one client after the other; here all are ended at once."""
        self._stopping = True
        for watcher in self._watchers:
            watcher.cancel()
        self._entrance.close()
        clients = list(self._clients.values())
        for one in clients:
            one.tell_end(Code.SHUTTING_DOWN)
        await asyncio.gather(*(one.arrival.wire.close() for one in clients))
        await super().shutdown()

    async def _create_server_instance(
        self,
        listener_name: str,
        listener_type: ListenerType,  # noqa: ARG002 - all are TCP, see above
        address: str | None,
        port: int,
        ssl_context: ssl.SSLContext | None,  # noqa: ARG002 - see Entrance
    ) -> asyncio.Server:
        """Replaces: amqtt listens with a backlog of 100 connections. A fleet that comes back at
        once has more, and the kernel has those that do not fit try again after a second, or three.
        """  # noqa: D205 - one sentence

        def line() -> Line:
            return Line(partial(self.stream_connected, listener_name=listener_name), self._loop)

        return await self._loop.create_server(
            line, address, port, reuse_address=True, backlog=BACKLOG
        )

    async def stream_connected(
        self,
        reader: asyncio.StreamReader,  # noqa: ARG002 - the line is read
        writer: asyncio.StreamWriter,
        listener_name: str,
    ) -> None:
        """Replaces: amqtt's whole way from a socket to a session and its end."""
        line = cast("Line", writer.transport.get_protocol())
        arrival = await self._entrance.admit(line, writer, websocket=listener_name == WEBSOCKET)
        if arrival is None:
            return
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                client, present = await self.let_in(arrival)
            await self._attend(client, present=present)
        except TimeoutError:
            self._refusals.add(
                Reason.TIMEOUT, f"the old connection of {arrival.session.client_id!r} does not end"
            )
        finally:
            self._doors.leave(arrival.name)
            arrival.wire.cut()

    async def _attend(self, client: Client, *, present: bool) -> None:
        goodbye, outbox = False, client.outbox
        outbox.answer(accepted(client.arrival.session, self._settings, present=present))
        try:
            if isinstance(outbox, Outbox5):
                outbox.resume()
                goodbye = await Conversation5(self, client, outbox).run()
            else:
                goodbye = await Conversation(self, client).run()
        except OversizePacketError as error:
            self._refusals.add(Reason.OVERSIZE, f"client {client.id!r}: {error}")
            client.tell_end(error.code)
        except MalformedPacketError as error:
            self._refusals.add(Reason.MALFORMED, f"client {client.id!r}: {error}")
            client.tell_end(error.code)
        finally:
            try:
                self.part(client, goodbye=goodbye)
            finally:
                client.ended.set()
        if goodbye:
            await client.arrival.wire.close()

    async def _watch(self) -> None:
        """Read the identity again when it has changed, and end whoever may not stay.

        Replaces: amqtt ends no client that is silent, and publishes no will of it.
        """
        while True:
            begun_s = self._loop.time()
            await asyncio.sleep(WATCH_EVERY_S)
            late_s = self._loop.time() - begun_s - WATCH_EVERY_S
            self._meter.tick(late_s)
            try:
                self._look_round(late_s)
            except Exception:
                log.exception("could not look after the connections")

    async def _tell_state(self) -> None:
        """Publish what was refused, as often as it changes, within reason, and now and then the
        load: `fleet status` has both.

        Replaces: amqtt publishes under `$SYS`, which nobody here may read, and no such thing.
        """  # noqa: D205 - one sentence
        topics = Topics(self._settings.topic_root)
        told: dict[Reason, int] = {}
        load_due_s = self._loop.time() + LOAD_EVERY_S
        while True:
            if (counts := self.refused) != told:
                told = counts
                refused = {reason.value: count for reason, count in counts.items()}
                self._state(topics.broker_refused(), BrokerRefusals(refused=refused), 1)
            if self._loop.time() >= load_due_s:
                load_due_s = self._loop.time() + LOAD_EVERY_S
                load = self._meter.load(len(self._clients), self._settings.max_connections)
                self._state(topics.broker_load(), load, 0)
            await asyncio.sleep(TELL_EVERY_S)

    def _state(self, topic: str, what: BrokerRefusals | BrokerLoad, qos: int) -> None:
        message = Message(topic, encode(what), qos)
        self.send(message)
        self.retain("", message)

    def _look_round(self, late_s: float) -> None:
        """Look after the identity and everybody once. `late_s` after it should have been.

        While the broker itself stands still, nobody else is silent: that time does not count.
        """
        if self._identity is not None:
            self._identity.refresh()
        now_s, wall = self._loop.time(), datetime.now(UTC)
        for client in list(self._clients.values()):
            client.last_s += late_s
            reason = self._why_end(client, now_s, wall)
            if reason is not None:
                self._refusals.add(reason, f"client {client.id!r} was disconnected")
                client.dismiss(ENDED[reason], for_good=reason is not Reason.SILENT)
        self.look_after_kept(now_s)
        self.clear_expired(now_s)

    def _why_end(self, client: Client, now_s: float, wall: datetime) -> Reason | None:
        guest = client.arrival.guest
        if self._identity is not None and guest is not None:
            if self._identity.is_revoked(guest):
                return Reason.REVOKED
            if wall > guest.not_after:
                return Reason.EXPIRED
        return Reason.SILENT if client.is_silent(now_s) else None
