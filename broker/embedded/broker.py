"""The broker itself: conversations with clients, and what goes from one to the others."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
from collections import deque
from typing import Any, Final

from amqtt.broker import Broker
from amqtt.contexts import Action, BrokerConfig
from amqtt.errors import AMQTTError, BrokerError, MQTTError, ProtocolHandlerError
from amqtt.mqtt.disconnect import DisconnectPacket
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.session import OutgoingApplicationMessage, Session

from broker.embedded.client import CLOSE_TIMEOUT_S, Arrival, Client
from broker.embedded.conversation import handle
from broker.embedded.doors import Doors
from broker.embedded.entrance import Entrance
from broker.embedded.filters import Filters
from broker.embedded.identity import Identity
from broker.embedded.outbox import Outbox
from broker.embedded.packets import MalformedPacketError, OversizePacketError, decode
from broker.embedded.refusals import Reason, Refusals
from broker.embedded.retained import Allowance, RetainedQuota
from broker.embedded.settings import ServerSettings
from broker.errors import LinkError

log = logging.getLogger("fleet.broker")

AMQTT_VERSION: Final = "0.12.1"
MAX_QUEUED: Final = 64  # messages between who sent them and whom they are for
WATCH_EVERY_S: Final = 0.5
PACKETS_AT_ONCE: Final = 50  # of one client, before others have their turn
REFUSED: Final = 0x80  # in a SUBACK
SCAN_AT_ONCE: Final = 1_000  # retained topics, before others have their turn


class EmbeddedBroker(Broker):
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
        super().__init__(
            BrokerConfig.from_dict(
                {
                    # No TLS for amqtt: it would wait for handshakes that nobody counts.
                    "listeners": {
                        "default": {"type": "tcp", "bind": f"{settings.host}:{settings.port}"}
                    },
                    "plugins": {},
                }
            )
        )
        self._settings = settings
        self._subscriptions = Filters()
        # Bounded, so that a client which sends faster than all can be told has to wait.
        self._broadcast_queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MAX_QUEUED)
        self._clients: dict[str, Client] = {}
        self._doors = Doors(settings)
        self._refusals = Refusals(self._loop.time)
        self._quota = RetainedQuota(Allowance(settings.max_retained, settings.max_retained_bytes))
        self._entrance = Entrance(
            settings, self._identity, self._doors, self._refusals, self.plugins_manager
        )
        self._watcher: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def port(self) -> int:
        """The port it listens on, once started."""
        sockets = self._servers["default"].instance.sockets
        return int(next(iter(sockets)).getsockname()[1])

    @property
    def refused(self) -> dict[Reason, int]:
        """How much was refused since the start, by reason."""
        return self._refusals.counts

    async def start(self) -> None:
        """Start to serve, and to look after those who are connected."""
        await super().start()
        self._watcher = asyncio.create_task(self._watch())

    async def shutdown(self) -> None:
        """Replaces: amqtt ends one client after the other; here all are ended at once."""
        self._stopping = True
        if self._watcher is not None:
            self._watcher.cancel()
        self._entrance.close()
        clients = list(self._clients.values())
        await asyncio.gather(*(one.arrival.wire.close() for one in clients))
        await super().shutdown()

    async def stream_connected(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        listener_name: str,  # noqa: ARG002 - there is one
    ) -> None:
        """Replaces: amqtt's whole way from a socket to a session and its end."""
        arrival = await self._entrance.admit(reader, writer)
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

    async def _topic_filtering(self, session: Session, topic: str, action: Action) -> bool:
        """Replaces: amqtt asks plugins, of which some cannot be configured and others admit
        `pub/#` to whoever may have `pub/+`.
        """  # noqa: D205 - one sentence
        if action is Action.PUBLISH and topic.startswith("$"):
            return False  # those are the broker's own (MQTT 3.1.1, 4.7.2)
        if self._identity is None:
            return True
        client = self._clients.get(session.client_id or "")
        rights = client.arrival.rights if client is not None else None
        if rights is None:
            return False
        match action:
            case Action.PUBLISH:
                return rights.may_publish(topic)
            case Action.SUBSCRIBE:
                return rights.may_subscribe(topic)
            case Action.RECEIVE:
                return rights.may_receive(topic)
        return False

    async def take(
        self, client: Client, topic: str, data: bytes, qos: int, *, retain: bool
    ) -> None:
        """Pass on what a client has published, within its rights; else it is dropped and counted.

        It is acknowledged all the same: MQTT 3.1.1 allows that or closing the connection
        (3.3.5-2), and whoever is closed for one wrong topic loses what it rightly has to say.
        """
        session = client.arrival.session
        if not await self._topic_filtering(session, topic, Action.PUBLISH):
            self._refusals.add(Reason.PUBLISH, f"client {client.id!r} may not publish to {topic!r}")
            return
        await self._broadcast_message(session, topic, data)
        if retain:
            await self.retain_message(session, topic, data, qos)

    async def subscribe(self, client: Client, filter_: str, qos: int) -> int:
        """Subscribe and return the code for the SUBACK.

        Replaces: amqtt takes any number of filters, and keeps the first QoS of each (3.8.4-3).
        """
        self._del_subscription(filter_, client.arrival.session)
        code = REFUSED
        if filter_ in client.filters or len(client.filters) < self._settings.max_filters:
            code = await self.add_subscription((filter_, qos), client.arrival.session)
        if code == REFUSED:
            self.unsubscribe(client, filter_)
            self._refusals.add(
                Reason.SUBSCRIBE, f"client {client.id!r} may not subscribe to {filter_!r}"
            )
        else:
            client.filters.add(filter_)
        return int(code)

    def unsubscribe(self, client: Client, filter_: str) -> None:
        """Replaces: amqtt keeps an empty list for every filter that there ever was."""
        self._del_subscription(filter_, client.arrival.session)
        client.filters.discard(filter_)
        if not self._subscriptions.get(filter_, True):
            del self._subscriptions[filter_]

    def tell_retained(self, client: Client, filter_: str, qos: int) -> None:
        """Have a client told what is retained under a filter that it has subscribed to.

        Replaces: amqtt sends all of it at once, however much, and to every client that connects
        the retained messages of everybody's filters.
        """
        client.asked[filter_] = qos
        if client.teller is None or client.teller.done():
            client.teller = asyncio.create_task(self._tell(client))

    async def _tell(self, client: Client) -> None:
        while client.asked:
            filter_ = next(iter(client.asked))
            qos = client.asked.pop(filter_)
            for number, topic in enumerate(self._retained_under(filter_), 1):
                if number % SCAN_AT_ONCE == 0:
                    await asyncio.sleep(0)
                if not self._matches(topic, filter_):
                    continue
                await client.outbox.room()
                retained = self._retained_messages.get(topic)
                session = client.arrival.session
                if retained is None or not await self._topic_filtering(
                    session, topic, Action.RECEIVE
                ):
                    continue
                best = qos if retained.qos is None else min(qos, retained.qos)
                client.outbox.send(topic, retained.data, best, retain=True)

    def _retained_under(self, filter_: str) -> list[str]:
        if "+" in filter_ or "#" in filter_:
            return list(self._retained_messages)
        return [filter_] if filter_ in self._retained_messages else []

    async def retain_message(
        self,
        source_session: Session | None,
        topic_name: str | None,
        data: bytes | bytearray | None,
        qos: int | None = None,
    ) -> None:
        """Replaces: amqtt retains any number of messages, and with each the session it is from."""
        if topic_name is None:
            return
        name = source_session.username or "" if source_session is not None else ""
        if not data:
            self._quota.forget(topic_name)
        elif not self._quota.take(name, topic_name, len(topic_name) + len(data)):
            # What is retained there is out of date now: rather nothing.
            self._quota.forget(topic_name)
            self._refusals.add(Reason.RETAINED, f"{name!r} has too much retained: {topic_name!r}")
            data = b""
        await super().retain_message(None, topic_name, data, qos)

    async def _run_broadcast(
        self,
        running_tasks: deque[asyncio.Task[OutgoingApplicationMessage]],  # noqa: ARG002 - Outbox has them
    ) -> None:
        """Replaces: amqtt formats every payload for a debug line that nobody reads, scans all
        filters, and queues without limit for a subscriber that does not read.
        """  # noqa: D205 - one sentence
        broadcast = await self._broadcast_queue.get()
        topic: str = broadcast["topic"]
        filters: Any = self._subscriptions
        if not isinstance(filters, Filters):
            raise BrokerError("the subscriptions were replaced")
        for name in filters.may_match(topic):
            if not self._matches(topic, name):
                continue
            for session, granted_qos in list(filters.get(name, ())):
                client = self._clients.get(session.client_id or "")
                if client is None or client.arrival.session is not session:
                    continue  # every client has a clean session: nothing is kept for later
                if await self._topic_filtering(session, topic, Action.RECEIVE):
                    qos = broadcast.get("qos", granted_qos)
                    client.outbox.send(topic, broadcast["data"], qos)
