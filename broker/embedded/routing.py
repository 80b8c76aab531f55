"""What goes from one client to the others: rights, subscriptions, retained messages."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any, Final

from amqtt.broker import Broker
from amqtt.contexts import BrokerConfig

from broker.embedded.kept import Kept
from broker.embedded.limits import Reason, Refusals
from broker.embedded.load import Meter
from broker.embedded.outbox import Mail
from broker.embedded.packets import Message
from broker.embedded.peer import Client, Gate
from broker.embedded.reason_codes import Code
from broker.embedded.retained import Allowance, Retained, RetainedQuota
from broker.embedded.settings import ServerSettings
from broker.embedded.subscriptions import OWN, Subscriptions, is_deep, is_filter

SCAN_AT_ONCE: Final = 1_000  # retained topics, before others have their turn
QUEUED_SHARE: Final = 8  # of the limit on what is queued: after so much more it is summed up


def may_publish(gate: Gate | None, topic: str) -> bool:
    """Tell whether somebody with these rights, or without a certificate, may say something there.

    Topics with a dollar are the broker's own (MQTT 3.1.1, 4.7.2).
    """
    if topic.startswith("$") or is_deep(topic):
        return False
    return gate is None or gate.may_publish(topic)


class Distribution(Broker):
    """The part of the broker that knows clients and topics, and neither sockets nor packets.

    Replaces: amqtt's plugins, of which some cannot be configured and others admit `pub/#` to
    whoever may have `pub/+`; and its one queue, which a task of its own waits for, to start a task
    for each message and one for each that it is for: with them a message at QoS 0 took 85 us, all
    of its way together; now it takes 6.
    """

    def __init__(self, settings: ServerSettings, config: BrokerConfig) -> None:
        """Prepare for the running event loop."""
        super().__init__(config)
        self._settings = settings
        self._clients: dict[str, Client] = {}
        self._kept: dict[str, Kept] = {}  # sessions without a connection, the oldest first
        self._refusals = Refusals(self._loop.time)
        self._quota = RetainedQuota(Allowance(settings.max_retained, settings.max_retained_bytes))
        self._subscribed: Subscriptions[Client | Kept] = Subscriptions()
        self._retained = Retained()
        self._mail = Mail(self._loop)
        self._queued_bytes = 0  # since it was last summed up
        self._meter = Meter(self._loop.time, time.process_time)

    @property
    def max_session_s(self) -> int:
        """How long a session may be kept without a connection."""
        return self._settings.max_session_s

    @property
    def refused(self) -> dict[Reason, int]:
        """How much was refused since the start, by reason."""
        return self._refusals.counts

    @property
    def subscriptions(self) -> Any:
        """The subscriptions, which have a length."""
        return self._subscribed

    @property
    def retained_messages(self) -> Any:
        """What is retained, which has a length."""
        return self._retained

    @property
    def sessions(self) -> Any:
        """The clients by their id."""
        return self._clients

    def take(self, client: Client, message: Message) -> bool:
        """Pass on what a client has published, within its rights; else drop it, and return false.

        MQTT 3.1.1 has it acknowledged all the same, or the connection closed (3.3.5-2), and whoever
        is closed for one wrong topic loses what it rightly has to say. MQTT 5 has a code for it.
        """
        if not may_publish(client.gate, message.topic):
            return self.count_dropped(client, message)
        self.send(message, client)
        if message.retain:
            self.retain(client.arrival.name, message)
        return True

    def count_dropped(self, client: Client, message: Message) -> bool:
        """Count a message outside the rights; return false."""
        detail = f"client {client.id!r} may not publish to {message.topic!r}"
        self._refusals.add(Reason.PUBLISH, detail)
        return False

    def send(self, message: Message, sender: Client | None = None) -> None:
        """Send a message to all who have subscribed to it and may have it."""
        topic = message.topic
        self._meter.messages += 1
        self._meter.size_bytes += len(message.payload)
        for client, grant in self._subscribed.matching(topic).items():
            gate = client.gate
            if (gate is None or gate.may_receive(topic)) and (grant & OWN or client is not sender):
                client.send(message, grant)

    def queued(self, size_bytes: int) -> None:
        """Take note that so much more may wait, for a client or of one; keep the sum bounded.

        What waits grows less without a word, and 10,000 connections take milliseconds to ask. So
        they are asked now and then, and brought so far below the limit that it holds until then.
        """
        limit_bytes = self._settings.max_queued_bytes
        self._queued_bytes += size_bytes
        if self._queued_bytes * QUEUED_SHARE > limit_bytes:
            self._queued_bytes = 0
            self._relieve(limit_bytes - limit_bytes // QUEUED_SHARE)

    def _relieve(self, most_bytes: int) -> None:
        """Disconnect those for whom most waits, until no more than `most_bytes` do in all.

        A session that is kept without a connection ends.
        """
        there = (client for client in self._clients.values() if not client.arrival.wire.is_cut)
        waiting: list[tuple[int, Client | Kept]] = [
            *((one.waiting_bytes, one) for one in there),
            *((one.waiting_bytes, one) for one in self._kept.values()),
        ]
        total_bytes = sum(size_bytes for size_bytes, _ in waiting)
        if total_bytes <= most_bytes:
            return
        for size_bytes, one in sorted(waiting, key=lambda one: one[0], reverse=True):
            held = f"it has {size_bytes} of the {total_bytes} bytes that wait in all"
            self._refusals.add(Reason.MEMORY, f"client {one.id!r} was disconnected: {held}")
            one.dismiss(Code.QUOTA_EXCEEDED, for_good=True)
            total_bytes -= size_bytes
            if total_bytes <= most_bytes:
                return

    def subscribe(self, client: Client, filter_: str, grant: int) -> Code:
        """Subscribe, or say why not; the caller counts what is refused.

        Replaces: amqtt takes any number of filters, and keeps the first QoS of each (3.8.4-3).
        """
        why = self._why_not(client, filter_)
        if why:
            self.unsubscribe(client, filter_)
            return why
        self._subscribed.add(filter_, client, grant)
        client.filters[filter_] = grant
        return Code.SUCCESS

    def _why_not(self, client: Client, filter_: str) -> Code:
        gate = client.gate
        if is_deep(filter_) or not is_filter(filter_):
            return Code.FILTER_INVALID
        if gate is not None and not gate.may_subscribe(filter_):
            return Code.NOT_AUTHORIZED
        if filter_ not in client.filters and len(client.filters) >= self._settings.max_filters:
            return Code.QUOTA_EXCEEDED
        return Code.SUCCESS

    def count_refused(self, client: Client, filters: Sequence[str]) -> None:
        """Count once what a client asks for at once: one mistaken root is several filters."""
        more = f" and {len(filters) - 1} more" if len(filters) > 1 else ""
        detail = f"client {client.id!r} may not subscribe to {filters[0]!r}{more}"
        self._refusals.add(Reason.SUBSCRIBE, detail)

    def unsubscribe(self, client: Client | Kept, filter_: str) -> None:
        """Replaces: amqtt keeps an empty list for every filter that there ever was."""
        self._subscribed.remove(filter_, client)
        client.filters.pop(filter_, None)

    def tell_retained(self, client: Client, filter_: str, grant: int) -> None:
        """Have a client told what is retained under a filter that it has subscribed to.

        Replaces: amqtt sends all of it at once, however much, and to every client that connects
        the retained messages of everybody's filters; and it compares each with each filter. Where
        there is nothing to tell, as for nearly all filters of a host, no task is started for it.
        """
        if next(self._retained.under(filter_), None) is None:
            client.asked.pop(filter_, None)
            return
        client.asked[filter_] = grant
        if client.teller is None or client.teller.done():
            client.teller = asyncio.create_task(self._tell(client))

    async def _tell(self, client: Client) -> None:
        gate = client.gate
        with contextlib.suppress(OSError):  # it went away
            while client.asked:
                filter_ = next(iter(client.asked))
                grant = client.asked.pop(filter_)
                for number, topic in enumerate(self._retained.under(filter_), 1):
                    if number % SCAN_AT_ONCE == 0:
                        await asyncio.sleep(0)
                    if gate is not None and not gate.may_receive(topic):
                        continue
                    await client.outbox.room()
                    kept = self._retained.get(topic)
                    if kept is not None and not kept.is_over(self._loop.time()):
                        client.outbox.send(kept, grant, filter_)

    def retain(self, name: str, message: Message) -> None:
        """Retain a message of somebody; one without a payload clears what is retained there.

        Replaces: amqtt retains any number of messages, and with each the session it is from.
        """
        topic = message.topic
        if not message.payload:
            self._clear_retained(topic)
        elif self._quota.take(name, topic, len(topic) + message.size_bytes):
            self._retained.keep(message.kept())
        else:
            # What is retained there is out of date now: rather nothing.
            self._clear_retained(topic)
            self._refusals.add(Reason.RETAINED, f"{name!r} has too much retained: {topic!r}")

    def clear_expired(self, now_s: float) -> None:
        """Let go of what was retained for so long, and no longer."""
        for topic in self._retained.expired(now_s):
            self._clear_retained(topic)

    def _clear_retained(self, topic: str) -> None:
        self._quota.forget(topic)
        self._retained.clear(topic)
