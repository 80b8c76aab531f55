"""A client that was let in: its packets in turn, and what is done with each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
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

from broker.embedded.packets import (
    PINGRESP,
    SIZES,
    Bytes,
    Message,
    answer,
    check,
    length,
    read_filters,
    read_id,
)
from broker.embedded.peer import MAX_HELD, Client
from broker.embedded.reason_codes import Code, MalformedPacketError, OversizePacketError
from broker.embedded.routing import Distribution, may_publish
from broker.embedded.subscriptions import OWN, QOS_GRANTS

log = logging.getLogger("fleet.broker")

REFUSED: Final = 0x80  # in a SUBACK
PACKETS_AT_ONCE: Final = 200  # of one client, before others have their turn


class Conversation:
    """Handles a client's packets as they come, each in turn and at once.

    Replaces: amqtt starts a task for each packet, without limit, and another for each message to
    each subscriber. Here a message has gone on when the call that brought it returns.
    """

    sizes = SIZES

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
            self._fail(MalformedPacketError(str(error), Code.IMPLEMENTATION_ERROR))
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
            kind = check(first, len(body), self.sizes)
            if kind == PUBLISH:
                self._publish(first, body)
            elif kind == DISCONNECT:
                over.set_result(self.goodbye(body))
            else:
                self._handle_other(kind, body)
        return False

    def _fail(self, error: Exception) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    def _publish(self, first: int, body: Bytes) -> None:
        message, packet_id = self.read(first, body)
        if not message.qos:
            self._broker.take(self._client, message)
            return
        if message.qos == 1:
            kind, taken = PUBACK, self._broker.take(self._client, message)
        else:
            kind, taken = PUBREC, self._hold(message, packet_id)
        self._client.outbox.answer(self.answer(kind, packet_id, taken))

    def _hold(self, message: Message, packet_id: int) -> bool:
        """Keep a message until its sender releases it; return false if it may not be sent."""
        client = self._client
        if not may_publish(client.gate, message.topic):
            return self._broker.count_dropped(client, message)
        if len(client.held) >= MAX_HELD and packet_id not in client.held:
            raise MalformedPacketError(
                "too many messages that were not released", Code.RECEIVE_MAXIMUM_EXCEEDED
            )
        client.held[packet_id] = message.kept()
        return True

    def _handle_other(self, kind: int, body: Bytes) -> None:
        name = _HANDLERS.get(kind)
        if name is None:
            raise MalformedPacketError(
                f"packet type {kind} from a client that is connected", Code.PROTOCOL_ERROR
            )
        getattr(self, name)(body)

    # What MQTT 5 has otherwise.

    read = staticmethod(Message.read)  # of a PUBLISH: the message, and its packet id
    answer = staticmethod(answer)  # to a message: by its type, its packet id, and if it was taken

    def goodbye(self, body: Bytes) -> bool:
        """Tell whether a DISCONNECT takes the will away."""
        del body
        return True

    def on_puback(self, body: Bytes) -> None:
        """Take note that a message has arrived."""
        self._client.outbox.on_puback(read_id(body))

    def on_pubrec(self, body: Bytes) -> None:
        """Take note that a message has arrived, and release it."""
        self._client.outbox.on_pubrec(read_id(body))

    def on_pubcomp(self, body: Bytes) -> None:
        """Take note that a message is done with."""
        self._client.outbox.on_pubcomp(read_id(body))

    def on_ping(self, _body: Bytes) -> None:
        """Answer."""
        self._client.outbox.answer(PINGRESP)

    def on_release(self, body: Bytes) -> None:
        """Pass on what was held."""
        packet_id = read_id(body)
        self.let_go(packet_id)
        self._client.outbox.answer(answer(PUBCOMP, packet_id))

    def let_go(self, packet_id: int) -> bool:
        """Pass on a message that was held; tell whether there was one."""
        held = self._client.held.pop(packet_id, None)
        if held is not None:
            self._broker.take(self._client, held)
        return held is not None

    def on_subscribe(self, body: Bytes) -> None:
        """Subscribe to each filter that may be had."""
        client, broker = self._client, self._broker
        packet_id, filters = read_filters(SUBSCRIBE, body)
        self.check_filters([name for name, _ in filters])
        if any(qos > 2 for _, qos in filters):
            raise MalformedPacketError("a SUBSCRIBE at a QoS that is none")
        asked = [(name, QOS_GRANTS[qos] | OWN) for name, qos in filters]
        refused = [broker.subscribe(client, name, grant) for name, grant in asked]
        codes = bytes(REFUSED if why else qos for why, (_, qos) in zip(refused, filters))
        head = bytes((SUBACK << 4,)) + length(2 + len(codes)) + packet_id.to_bytes(2, "big")
        client.outbox.answer(head + codes)
        self.count_refused([name for (name, _), why in zip(asked, refused) if why])
        for (name, grant), why in zip(asked, refused):
            if not why:
                broker.tell_retained(client, name, grant)

    def check_filters(self, names: Sequence[str]) -> None:
        """Raise `MalformedPacketError` unless each is something, and there are some."""
        if not names or any(not name or "\0" in name for name in names):
            raise MalformedPacketError("a SUBSCRIBE to nothing", Code.PROTOCOL_ERROR)

    def count_refused(self, names: Sequence[str]) -> None:
        """Count what was refused, if anything was."""
        if names:
            self._broker.count_refused(self._client, names)

    def on_unsubscribe(self, body: Bytes) -> None:
        """Unsubscribe."""
        packet_id, filters = read_filters(UNSUBSCRIBE, body)
        for name, _ in filters:
            self.unsubscribe(name)
        self._client.outbox.answer(answer(UNSUBACK, packet_id))

    def unsubscribe(self, name: str) -> None:
        """End one subscription, and what is due of it."""
        self._broker.unsubscribe(self._client, name)
        self._client.asked.pop(name, None)


_HANDLERS: Final = {
    PUBREL: "on_release",
    SUBSCRIBE: "on_subscribe",
    UNSUBSCRIBE: "on_unsubscribe",
    PINGREQ: "on_ping",
    PUBACK: "on_puback",
    PUBREC: "on_pubrec",
    PUBCOMP: "on_pubcomp",
}
