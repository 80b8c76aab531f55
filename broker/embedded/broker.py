"""The broker itself: its start and end, and each client from its arrival on."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
from typing import Final

from amqtt.contexts import BrokerConfig
from amqtt.errors import AMQTTError, MQTTError, ProtocolHandlerError
from amqtt.mqtt.disconnect import DisconnectPacket
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler

from broker.embedded.client import CLOSE_TIMEOUT_S, Arrival, Client
from broker.embedded.conversation import handle
from broker.embedded.distribution import Distribution
from broker.embedded.doors import Doors
from broker.embedded.entrance import Entrance
from broker.embedded.identity import Identity
from broker.embedded.outbox import Outbox
from broker.embedded.packets import MalformedPacketError, OversizePacketError, decode
from broker.embedded.refusals import Reason
from broker.embedded.settings import ServerSettings
from broker.errors import LinkError
from broker.messages import BrokerRefusals, encode
from broker.topics import Topics

log = logging.getLogger("fleet.broker")

AMQTT_VERSION: Final = "0.12.1"
WATCH_EVERY_S: Final = 0.5
TELL_EVERY_S: Final = 2.0
WEBSOCKET: Final = "websocket"  # the listener's name
PACKETS_AT_ONCE: Final = 50  # of one client, before others have their turn


class EmbeddedBroker(Distribution):
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
        self._entrance = Entrance(
            settings, self._identity, self._doors, self._refusals, self.plugins_manager
        )
        self._watchers: list[asyncio.Task[None]] = []
        self._stopping = False

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
        self._watchers = [asyncio.create_task(one) for one in (self._watch(), self._tell_refused())]

    async def shutdown(self) -> None:
        """Replaces: amqtt ends one client after the other; here all are ended at once."""
        self._stopping = True
        for watcher in self._watchers:
            watcher.cancel()
        self._entrance.close()
        clients = list(self._clients.values())
        await asyncio.gather(*(one.arrival.wire.close() for one in clients))
        await super().shutdown()

    async def stream_connected(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        listener_name: str,
    ) -> None:
        """Replaces: amqtt's whole way from a socket to a session and its end."""
        arrival = await self._entrance.admit(reader, writer, websocket=listener_name == WEBSOCKET)
        if arrival is None:
            return
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                client = await self._let_in(arrival)
            await self._attend(client)
        except TimeoutError:
            self._refusals.add(
                Reason.TIMEOUT, f"the old connection of {arrival.session.client_id!r} does not end"
            )
        finally:
            self._doors.leave(arrival.name)
            arrival.wire.cut()

    async def _let_in(self, arrival: Arrival) -> Client:
        """Make a session. One with the same id ends first, its will published.

        Replaces: amqtt leaves the old connection open and publishes no will. MQTT 3.1.1 has the
        broker disconnect it (3.1.4-2), and publish the will of every connection that ends without
        a DISCONNECT (3.1.2.5).
        """
        session = arrival.session
        while (old := self._clients.get(str(session.client_id))) is not None:
            old.arrival.wire.cut()
            await old.ended.wait()

        def slow() -> None:
            self._refusals.add(
                Reason.SLOW, f"client {session.client_id!r} does not keep up with its messages"
            )

        outbox = Outbox(arrival.handler, self._settings, slow)
        client = Client(arrival, outbox, self._loop.time())
        session.transitions.connect()
        self._clients[client.id] = client
        self._sessions[client.id] = (session, arrival.handler)
        return client

    async def _attend(self, client: Client) -> None:
        goodbye = False
        try:
            await client.arrival.handler.mqtt_connack_authorize(authorize=True)
            goodbye = await self._converse(client)
        except OversizePacketError as error:
            self._refusals.add(Reason.OVERSIZE, f"client {client.id!r}: {error}")
        except MalformedPacketError as error:
            self._refusals.add(Reason.MALFORMED, f"client {client.id!r}: {error}")
        except (AMQTTError, MQTTError, ProtocolHandlerError, OSError):
            pass  # the connection broke while something was sent
        finally:
            try:
                await self._part(client, goodbye=goodbye)
            finally:
                client.ended.set()

    async def _converse(self, client: Client) -> bool:
        """Handle a client's packets in turn until its end; tell whether it said goodbye.

        Replaces: amqtt starts a task for each packet, without limit.
        """
        handled = 0
        while (frame := await client.arrival.packets.frame()) is not None:
            handled += 1
            if handled % PACKETS_AT_ONCE == 0:
                await asyncio.sleep(0)  # what has come already is read without a pause
            packet = await decode(frame)
            client.last_s = self._loop.time()
            if isinstance(packet, DisconnectPacket):
                return True
            await handle(self, client, packet)
        return False

    async def _part(self, client: Client, *, goodbye: bool) -> None:
        """Forget a client; publish its will unless it said goodbye."""
        session = client.arrival.session
        client.outbox.close()
        if client.teller is not None:
            client.teller.cancel()
        if self._clients.get(client.id) is client:
            del self._clients[client.id]
            self._sessions.pop(client.id, None)
        for filter_ in list(client.filters):
            self.unsubscribe(client, filter_)
        session.transitions.disconnect()
        if session.will_flag and not goodbye and not self._stopping:
            topic, data, qos = session.will_topic, session.will_message, session.will_qos
            await self._broadcast_message(session, topic, data, qos)
            if session.will_retain:
                await self.retain_message(session, topic, data, qos)
        await super()._stop_handler(client.arrival.handler)

    async def _stop_handler(self, handler: BrokerProtocolHandler) -> None:
        """Replaces: amqtt cancels a client's reader and waits for its end, but asyncio loses a
        cancel that comes at the same time as a packet (before Python 3.12), and nothing ends.
        """  # noqa: D205 - one sentence
        client = self._clients.get(handler.session.client_id) if handler.session else None
        if client is None or client.arrival.handler is not handler:
            return
        await client.arrival.wire.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await client.ended.wait()

    async def _watch(self) -> None:
        """Read the identity again when it has changed, and end whoever may not stay.

        Replaces: amqtt ends no client that is silent, and publishes no will of it.
        """
        while True:
            begun_s = self._loop.time()
            await asyncio.sleep(WATCH_EVERY_S)
            try:
                self._look_round(self._loop.time() - begun_s - WATCH_EVERY_S)
            except Exception:
                log.exception("could not look after the connections")

    async def _tell_refused(self) -> None:
        """Publish what was refused, as often as it changes, within reason: `fleet status` has it.

        Replaces: amqtt publishes under `$SYS`, which nobody here may read, and no such thing.
        """
        topic = Topics(self._settings.topic_root).broker_refused()
        told: dict[Reason, int] = {}
        while True:
            if (counts := self.refused) != told:
                told = counts
                refused = {reason.value: count for reason, count in counts.items()}
                payload = encode(BrokerRefusals(refused=refused))
                await self._broadcast_message(None, topic, payload, 1)
                await self.retain_message(None, topic, payload, 1)
            await asyncio.sleep(TELL_EVERY_S)

    def _look_round(self, late_s: float) -> None:
        """Look after the identity and everybody once. `late_s` after it should have been.

        While the broker itself stands still, nobody else is silent: that time does not count.
        """
        if self._identity is not None:
            self._identity.refresh()
        for client in list(self._clients.values()):
            client.last_s += late_s
            reason = self._why_end(client)
            if reason is not None:
                self._refusals.add(reason, f"client {client.id!r} was disconnected")
                client.arrival.wire.cut()

    def _why_end(self, client: Client) -> Reason | None:
        guest = client.arrival.guest
        if self._identity is not None and guest is not None:
            if self._identity.is_revoked(guest):
                return Reason.REVOKED
            if self._identity.is_expired(guest):
                return Reason.EXPIRED
        return Reason.SILENT if client.is_silent(self._loop.time()) else None
