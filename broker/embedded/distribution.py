"""What goes from one client to the others: rights, subscriptions, retained messages."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

from amqtt.broker import Broker
from amqtt.contexts import Action, BrokerConfig
from amqtt.errors import BrokerError
from amqtt.session import OutgoingApplicationMessage, Session

from broker.embedded.client import Client
from broker.embedded.filters import Filters
from broker.embedded.refusals import Reason, Refusals
from broker.embedded.retained import Allowance, RetainedQuota
from broker.embedded.settings import ServerSettings

MAX_QUEUED: Final = 64  # messages between who sent them and whom they are for
REFUSED: Final = 0x80  # in a SUBACK
SCAN_AT_ONCE: Final = 1_000  # retained topics, before others have their turn


class Distribution(Broker):
    """The part of the broker that knows clients and topics, and neither sockets nor packets."""

    def __init__(self, settings: ServerSettings, config: BrokerConfig) -> None:
        """Prepare for the running event loop."""
        super().__init__(config)
        self._settings = settings
        self._clients: dict[str, Client] = {}
        self._refusals = Refusals(self._loop.time)
        self._quota = RetainedQuota(Allowance(settings.max_retained, settings.max_retained_bytes))
        self._subscriptions = Filters()
        # Bounded, so that a client which sends faster than all can be told has to wait.
        self._broadcast_queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MAX_QUEUED)

    @property
    def refused(self) -> dict[Reason, int]:
        """How much was refused since the start, by reason."""
        return self._refusals.counts

    async def _topic_filtering(self, session: Session, topic: str, action: Action) -> bool:
        """Replaces: amqtt asks plugins, of which some cannot be configured and others admit
        `pub/#` to whoever may have `pub/+`.
        """  # noqa: D205 - one sentence
        if action is Action.PUBLISH and topic.startswith("$"):
            return False  # those are the broker's own (MQTT 3.1.1, 4.7.2)
        if self._settings.identity is None:
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
