"""What is done with each packet of a client that was let in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from amqtt.mqtt.pingreq import PingReqPacket
from amqtt.mqtt.puback import PubackPacket
from amqtt.mqtt.pubcomp import PubcompPacket
from amqtt.mqtt.publish import PublishPacket
from amqtt.mqtt.pubrec import PubrecPacket
from amqtt.mqtt.pubrel import PubrelPacket
from amqtt.mqtt.subscribe import SubscribePacket
from amqtt.mqtt.unsubscribe import UnsubscribePacket

from broker.embedded.client import Client
from broker.embedded.distribution import REFUSED, Distribution
from broker.embedded.packets import MalformedPacketError

MAX_HELD: Final = 20  # QoS 2 messages that their sender has not released


async def handle(broker: Distribution, client: Client, packet: Any) -> None:
    """Do what a packet asks for. Raises `MalformedPacketError` for one that no client may send."""
    found = _HANDLERS.get(type(packet))
    if found is None:
        raise MalformedPacketError(f"{type(packet).__name__} from a client that is connected")
    await found(broker, client, packet)


async def _publish(broker: Distribution, client: Client, packet: PublishPacket) -> None:
    topic = packet.topic_name
    if not topic or "\0" in topic:
        raise MalformedPacketError("a message to no topic")
    if packet.qos == 2:
        if len(client.held) >= MAX_HELD:
            raise MalformedPacketError("too many messages that were not released")
        client.held[packet.packet_id] = packet
        await client.arrival.handler.reply(PubrecPacket.build(packet.packet_id))
        return
    await broker.take(client, topic, packet.data, packet.qos, retain=packet.retain_flag)
    if packet.qos == 1:
        await client.arrival.handler.reply(PubackPacket.build(packet.packet_id))


async def _release(broker: Distribution, client: Client, packet: PubrelPacket) -> None:
    held = client.held.pop(packet.packet_id, None)
    if held is not None:
        await broker.take(client, held.topic_name, held.data, 2, retain=held.retain_flag)
    await client.arrival.handler.reply(PubcompPacket.build(packet.packet_id))


async def _subscribe(broker: Distribution, client: Client, packet: SubscribePacket) -> None:
    filters = packet.payload.topics
    if not filters or any(qos > 2 or not name or "\0" in name for name, qos in filters):
        raise MalformedPacketError("a SUBSCRIBE to nothing, or at a QoS that is none")
    codes = [await broker.subscribe(client, name, qos) for name, qos in filters]
    packet_id = packet.variable_header.packet_id
    await client.arrival.handler.mqtt_acknowledge_subscription(packet_id, codes)
    for (name, _), code in zip(filters, codes):
        if code != REFUSED:
            broker.tell_retained(client, name, code)


async def _unsubscribe(broker: Distribution, client: Client, packet: UnsubscribePacket) -> None:
    for name in packet.payload.topics:
        broker.unsubscribe(client, name)
        client.asked.pop(name, None)
    packet_id = packet.variable_header.packet_id
    await client.arrival.handler.mqtt_acknowledge_unsubscription(packet_id)


async def _ping(_broker: Distribution, client: Client, packet: PingReqPacket) -> None:
    await client.arrival.handler.handle_pingreq(packet)


async def _puback(_broker: Distribution, client: Client, packet: PubackPacket) -> None:
    await client.arrival.handler.handle_puback(packet)


async def _pubrec(_broker: Distribution, client: Client, packet: PubrecPacket) -> None:
    await client.arrival.handler.handle_pubrec(packet)


async def _pubcomp(_broker: Distribution, client: Client, packet: PubcompPacket) -> None:
    await client.arrival.handler.handle_pubcomp(packet)


_HANDLERS: Final[dict[type[Any], Callable[[Any, Client, Any], Awaitable[None]]]] = {
    PublishPacket: _publish,
    PubrelPacket: _release,
    SubscribePacket: _subscribe,
    UnsubscribePacket: _unsubscribe,
    PingReqPacket: _ping,
    PubackPacket: _puback,
    PubrecPacket: _pubrec,
    PubcompPacket: _pubcomp,
}
