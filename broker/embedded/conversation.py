"""A client that was let in: its packets in turn, and what is done with each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from amqtt.mqtt.packet import (
    DISCONNECT,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
)

from broker.embedded.client import Client
from broker.embedded.distribution import REFUSED, Distribution
from broker.embedded.packets import (
    PINGRESP,
    Bytes,
    MalformedPacketError,
    Message,
    OversizePacketError,
    answer,
    check,
    length,
    read_filters,
    read_id,
)

log = logging.getLogger("fleet.broker")

MAX_HELD: Final = 20  # QoS 2 messages that their sender has not released
PACKETS_AT_ONCE: Final = 200  # of one client, before others have their turn
RETAIN: Final = 0b0001


class Conversation:
    """Handles a client's packets as they come, each in turn and at once.

    Replaces: amqtt starts a task for each packet, without limit, and another for each message to
    each subscriber. Here a message has gone on when the call that brought it returns.
    """

    def __init__(self, broker: Distribution, client: Client) -> None:
        self._broker = broker
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._cutter = client.arrival.cutter
        self._wire = client.arrival.wire
        self._has_turn = False  # one is due, since there is more than fits into one
        self._is_ending = False
        self._over: asyncio.Future[bool] = self._loop.create_future()

    async def run(self) -> bool:
        """Handle packets until the end; return whether it came with a goodbye.

        Raises `OversizePacketError` and `MalformedPacketError` for what ends the connection.
        """
        self._wire.line.on_room = self._on_room
        self._take_turn()
        self._wire.line.follow(self._on_data, self._on_end)
        return await self._over

    def _on_data(self, data: bytes) -> None:
        if self._over.done():
            return
        try:
            self._cutter.feed(self._wire.decode(data))
            self._broker.queued(len(data))
        except (MalformedPacketError, OversizePacketError) as error:
            self._fail(error)
            return
        if not self._has_turn and not self._client.outbox.is_choked:
            self._take_turn()
        if self._wire.has_ended:
            self._on_end()

    def _on_end(self) -> None:
        if self._has_turn and not self._wire.is_cut:
            self._is_ending = True  # what was sent before counts
        elif not self._over.done():
            self._over.set_result(False)

    def _on_room(self) -> None:
        outbox = self._client.outbox
        was_choked = outbox.is_choked
        outbox.caught_up()
        if was_choked and not self._has_turn:
            self._take_turn()

    def _take_turn(self) -> None:
        self._has_turn = False
        try:
            done = self._handle_some()
        except (MalformedPacketError, OversizePacketError) as error:
            self._fail(error)
        except Exception as error:
            log.exception("client %r: a packet could not be handled", self._client.id)
            self._fail(MalformedPacketError(str(error)))
        else:
            if not done:
                # What has come is in memory: nothing more is read until that is through.
                self._has_turn = True
                self._wire.rest()
                self._loop.call_soon(self._take_turn)
            elif self._is_ending:
                self._on_end()
            elif self._client.outbox.is_choked:
                self._wire.rest()
            elif self._wire.is_resting:
                self._wire.go_on()

    def _handle_some(self) -> bool:
        """Handle what has come; false when there may be more than one turn bears."""
        client, over, outbox = self._client, self._over, self._client.outbox
        now_s = self._loop.time()
        for _ in range(PACKETS_AT_ONCE):
            if over.done() or outbox.is_choked or self._wire.is_cut:
                return True
            found = self._cutter.next()
            if found is None:
                return True
            client.last_s = now_s
            first, body = found
            kind = check(first, len(body))
            if kind == PUBLISH:
                self._publish(first, body)
            elif kind == DISCONNECT:
                over.set_result(True)
            else:
                self._handle_other(kind, body)
        return False

    def _fail(self, error: Exception) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    def _publish(self, first: int, body: Bytes) -> None:
        message, packet_id = Message.read(first, body)
        client, retain = self._client, bool(first & RETAIN)
        if message.qos == 2:
            if len(client.held) >= MAX_HELD:
                raise MalformedPacketError("too many messages that were not released")
            client.held[packet_id] = (message.kept(), retain)
            client.outbox.answer(answer(PUBREC, packet_id))
            return
        self._broker.take(client, message, retain=retain)
        if message.qos:
            client.outbox.answer(answer(PUBACK, packet_id))

    def _handle_other(self, kind: int, body: Bytes) -> None:
        act = _HANDLERS.get(kind)
        if act is None:
            raise MalformedPacketError(f"packet type {kind} from a client that is connected")
        act(self._broker, self._client, body)


def _puback(_broker: Distribution, client: Client, body: Bytes) -> None:
    client.outbox.on_puback(read_id(body))


def _pubrec(_broker: Distribution, client: Client, body: Bytes) -> None:
    client.outbox.on_pubrec(read_id(body))


def _pubcomp(_broker: Distribution, client: Client, body: Bytes) -> None:
    client.outbox.on_pubcomp(read_id(body))


def _ping(_broker: Distribution, client: Client, _body: Bytes) -> None:
    client.outbox.answer(PINGRESP)


def _release(broker: Distribution, client: Client, body: Bytes) -> None:
    packet_id = read_id(body)
    held = client.held.pop(packet_id, None)
    if held is not None:
        message, retain = held
        broker.take(client, message, retain=retain)
    client.outbox.answer(answer(PUBCOMP, packet_id))


def _subscribe(broker: Distribution, client: Client, body: Bytes) -> None:
    packet_id, filters = read_filters(SUBSCRIBE, body)
    if not filters or any(qos > 2 or not name or "\0" in name for name, qos in filters):
        raise MalformedPacketError("a SUBSCRIBE to nothing, or at a QoS that is none")
    codes = bytes(broker.subscribe(client, name, qos) for name, qos in filters)
    head = bytes((SUBACK << 4,)) + length(2 + len(codes)) + packet_id.to_bytes(2, "big")
    client.outbox.answer(head + codes)
    if refused := [name for (name, _), code in zip(filters, codes) if code == REFUSED]:
        broker.count_refused(client, refused)
    for (name, _), code in zip(filters, codes):
        if code != REFUSED:
            broker.tell_retained(client, name, code)


def _unsubscribe(broker: Distribution, client: Client, body: Bytes) -> None:
    packet_id, filters = read_filters(UNSUBSCRIBE, body)
    for name, _ in filters:
        broker.unsubscribe(client, name)
        client.asked.pop(name, None)
    client.outbox.answer(answer(UNSUBACK, packet_id))


_HANDLERS: Final[dict[int, Callable[[Distribution, Client, Bytes], None]]] = {
    PUBREL: _release,
    SUBSCRIBE: _subscribe,
    UNSUBSCRIBE: _unsubscribe,
    PINGREQ: _ping,
    PUBACK: _puback,
    PUBREC: _pubrec,
    PUBCOMP: _pubcomp,
}
