"""The packets of one client, in turn, at both protocol levels."""

from __future__ import annotations

import asyncio
from typing import Final

from broker.embedded import properties
from broker.embedded.connect import MAX_HELD
from broker.embedded.message import Message, read_publish
from broker.embedded.packets import (
    PINGRESP,
    Fields,
    Kind,
    answer,
    answer_filters,
    check,
    read_filters,
)
from broker.embedded.reason_codes import Code, PacketError
from broker.embedded.routing import Router
from broker.embedded.session import Client, Session
from broker.embedded.subscriptions import Subscription

REFUSED: Final = 0x80  # in a SUBACK of level 4
PACKETS_AT_ONCE: Final = 200  # of one client, before others have their turn
SHARED: Final = "$share/"
NO_LOCAL: Final = 0b0000_0100  # of a subscription's options (MQTT 5, 3.8.3.1)
AS_PUBLISHED: Final = 0b0000_1000
RETAIN_HANDLING: Final = 0b0011_0000
RESERVED: Final = 0b1100_0000


class Conversation:
    """Handles the packets of one client: a message has been passed on when its handler returns."""

    def __init__(self, router: Router, session: Session, client: Client) -> None:
        self._router = router
        self._session = session
        self._client = client
        self._level = client.asked.level
        self._handlers = {
            Kind.PUBACK: self._on_puback,
            Kind.PUBREC: self._on_pubrec,
            Kind.PUBREL: self._on_pubrel,
            Kind.PUBCOMP: self._on_pubcomp,
            Kind.SUBSCRIBE: self._on_subscribe,
            Kind.UNSUBSCRIBE: self._on_unsubscribe,
            Kind.PINGREQ: self._on_ping,
        }

    async def run(self) -> bool:
        """Handle packets until the end; return whether the client said goodbye.

        Raises `PacketError` for a packet that ends the connection.
        """
        client, channel, handled = self._client, self._client.channel, 0
        while (found := await channel.packet()) is not None and not channel.is_closed:
            client.last_s = self._router.now_s()
            first, body = found
            kind = check(self._level, first, len(body))
            if kind == Kind.DISCONNECT:
                return self._goodbye(body)
            if kind == Kind.PUBLISH:
                self._on_publish(first, body)
            else:
                self._handle_other(kind, body)
            await client.catch_up()
            handled += 1
            if handled % PACKETS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return False

    def _handle_other(self, kind: int, body: bytes) -> None:
        handler = self._handlers.get(kind)  # type: ignore[call-overload]
        if handler is None:
            raise PacketError(f"packet type {kind} after the CONNECT", Code.PROTOCOL_ERROR)
        handler(Fields(kind, body))

    def _answer(self, kind: Kind, packet_id: int, code: Code = Code.SUCCESS) -> None:
        self._client.answer(answer(self._level, kind, packet_id, code))

    def _on_publish(self, first: int, body: bytes) -> None:
        message, packet_id = read_publish(self._level, first, body)
        message.start_clock(self._router.now_s())
        if message.qos == 2:
            is_taken = self._hold(message, packet_id)
        else:
            is_taken = self._router.take(self._session, message)
        if message.qos:
            kind = Kind.PUBACK if message.qos == 1 else Kind.PUBREC
            self._answer(kind, packet_id, Code.SUCCESS if is_taken else Code.NOT_AUTHORIZED)

    def _hold(self, message: Message, packet_id: int) -> bool:
        """Keep a message until its sender releases it; return false if it may not be sent."""
        held = self._session.held
        if not self._router.check_rights(self._session, message):
            return False
        if len(held) >= MAX_HELD and packet_id not in held:
            detail = "too many messages that were not released"
            raise PacketError(detail, Code.RECEIVE_MAXIMUM_EXCEEDED)
        held[packet_id] = message
        return True

    def _goodbye(self, body: bytes) -> bool:
        """Tell whether a DISCONNECT takes the will away: not if it gives a reason (MQTT 5)."""
        code, found = properties.read_reason(Fields(Kind.DISCONNECT, body))
        expiry_s = found.values.get(properties.SESSION_EXPIRY)
        if expiry_s is not None:
            if expiry_s and not self._client.asked.expiry_s:
                raise PacketError("a session that began without an expiry", Code.PROTOCOL_ERROR)
            self._session.expiry_s = min(expiry_s, self._router.settings.max_session_s)
        return code == Code.SUCCESS

    def _on_ping(self, _fields: Fields) -> None:
        self._client.answer(PINGRESP)

    def _read_answer(self, fields: Fields) -> tuple[int, int]:
        """Return the packet id of an acknowledgement and its reason code."""
        packet_id = fields.integer(2)
        return packet_id, properties.read_reason(fields)[0]

    def _on_puback(self, fields: Fields) -> None:
        self._session.on_acknowledged(self._read_answer(fields)[0], 1)

    def _on_pubrec(self, fields: Fields) -> None:
        self._session.on_received(*self._read_answer(fields))

    def _on_pubcomp(self, fields: Fields) -> None:
        self._session.on_acknowledged(self._read_answer(fields)[0], 2)

    def _on_pubrel(self, fields: Fields) -> None:
        packet_id, _ = self._read_answer(fields)
        held = self._session.held.pop(packet_id, None)
        if held is not None:
            self._router.take(self._session, held)
        code = Code.SUCCESS if held is not None else Code.ID_NOT_FOUND
        self._answer(Kind.PUBCOMP, packet_id, code)

    def _on_subscribe(self, fields: Fields) -> None:
        packet_id, found = fields.integer(2), properties.NONE
        if self._level == 5:
            found = properties.read(fields)
        filters = read_filters(fields)
        identifier = found.values.get(properties.SUBSCRIPTION_ID, 0)
        for _, options in filters:
            self._check_options(options)
        codes, refused, due = bytearray(), [], []
        for name, options in filters:
            is_new = name not in self._session.filters
            code = self._subscribe(name, options, identifier)
            if code:
                codes.append(code if self._level == 5 else REFUSED)
                refused.append(name)
                continue
            codes.append(options & 3)
            if _wants_retained(options, is_new=is_new):
                due.append(name)
        self._client.answer(answer_filters(self._level, Kind.SUBACK, packet_id, bytes(codes)))
        if refused:
            self._router.count_refused(self._session, refused)
        self._router.tell_retained(self._session, due)

    def _check_options(self, options: int) -> None:
        if self._level == 4:
            is_good = options <= 2
        else:
            is_good = not options & RESERVED and options & 3 != 3
            is_good = is_good and options & RETAIN_HANDLING != RETAIN_HANDLING
        if not is_good:
            raise PacketError(f"a SUBSCRIBE with options {options:08b}", Code.PROTOCOL_ERROR)

    def _subscribe(self, name: str, options: int, identifier: int) -> Code:
        if self._level == 5 and name.startswith(SHARED):
            return Code.NO_SHARED_SUBSCRIPTIONS
        no_local, as_published = bool(options & NO_LOCAL), bool(options & AS_PUBLISHED)
        subscription = Subscription(options & 3, no_local, as_published, identifier)
        return self._router.subscribe(self._session, name, subscription)

    def _on_unsubscribe(self, fields: Fields) -> None:
        packet_id = fields.integer(2)
        if self._level == 5:
            properties.read(fields)
        codes = bytearray()
        for name, _ in read_filters(fields):
            found = self._router.unsubscribe(self._session, name)
            codes.append(Code.SUCCESS if found else Code.NO_SUBSCRIPTION_EXISTED)
        told = bytes(codes) if self._level == 5 else b""
        self._client.answer(answer_filters(self._level, Kind.UNSUBACK, packet_id, told))


def _wants_retained(options: int, *, is_new: bool) -> bool:
    """Tell whether a subscription is sent what is retained (MQTT 5, 3.3.1.3)."""
    handling = (options & RETAIN_HANDLING) >> 4
    return handling == 0 or (handling == 1 and is_new)
