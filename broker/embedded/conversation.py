"""The packets of one client, in turn, at both protocol levels."""

from __future__ import annotations

import asyncio
from typing import Final

from broker.embedded import properties
from broker.embedded.connect import MAX_HELD
from broker.embedded.message import Message, read_publish
from broker.embedded.packets import (
    PINGRESP,
    Code,
    Fields,
    Kind,
    RefusedError,
    answer,
    answer_filters,
    check,
    read_filters,
)
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

    async def run(self) -> bool:
        """Handle packets until the end; return whether the client said goodbye.

        Raises `RefusedError` for a packet that ends the connection.
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
                self._on_other(kind, Fields(kind, body))
            await client.catch_up()
            handled += 1
            if handled % PACKETS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return False

    def _on_other(self, kind: int, fields: Fields) -> None:
        match kind:
            case Kind.PUBACK:
                self._session.on_acknowledged(_read_answer(fields)[0], 1)
            case Kind.PUBCOMP:
                self._session.on_acknowledged(_read_answer(fields)[0], 2)
            case Kind.PUBREC:
                self._session.on_received(*_read_answer(fields))
            case Kind.PUBREL:
                self._release(_read_answer(fields)[0])
            case Kind.SUBSCRIBE:
                self._subscribe(fields)
            case Kind.UNSUBSCRIBE:
                self._unsubscribe(fields)
            case Kind.PINGREQ:
                self._client.answer(PINGRESP)
            case _:
                detail = f"packet type {kind} after the CONNECT"
                raise RefusedError(detail, Code.PROTOCOL_ERROR)

    def _answer(self, kind: Kind, packet_id: int, code: Code) -> None:
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
            raise RefusedError(detail, Code.RECEIVE_MAXIMUM_EXCEEDED)
        held[packet_id] = message
        return True

    def _release(self, packet_id: int) -> None:
        held = self._session.held.pop(packet_id, None)
        if held is not None:
            self._router.take(self._session, held)
        self._answer(Kind.PUBCOMP, packet_id, Code.SUCCESS if held else Code.ID_NOT_FOUND)

    def _goodbye(self, body: bytes) -> bool:
        """Tell whether a DISCONNECT takes the will away: not if it gives a reason (MQTT 5)."""
        code, found = properties.read_reason(Fields(Kind.DISCONNECT, body))
        expiry_s = found.values.get(properties.SESSION_EXPIRY)
        if expiry_s is not None:
            if expiry_s and not self._client.asked.expiry_s:
                raise RefusedError("a session that began without an expiry", Code.PROTOCOL_ERROR)
            self._session.expiry_s = min(expiry_s, self._router.settings.max_session_s)
        return code == Code.SUCCESS

    def _subscribe(self, fields: Fields) -> None:
        packet_id, found = self._read_head(fields)
        filters = read_filters(fields)
        for _, options in filters:
            self._check_options(options)
        codes, refused, due = bytearray(), [], []
        for name, options in filters:
            is_new = name not in self._session.filters
            code = self._add(name, options, found.values.get(properties.SUBSCRIPTION_ID, 0))
            if code:
                codes.append(code if self._level == 5 else REFUSED)
                refused.append(name)
                continue
            codes.append(options & 3)
            handling = (options & RETAIN_HANDLING) >> 4  # MQTT 5, 3.3.1.3
            if handling == 0 or (handling == 1 and is_new):
                due.append(name)
        self._client.answer(answer_filters(self._level, Kind.SUBACK, packet_id, bytes(codes)))
        if refused:
            self._router.count_refused(self._session, refused)
        self._router.tell_retained(self._session, due)

    def _read_head(self, fields: Fields) -> tuple[int, properties.Found]:
        """Read what comes before the filters: the packet id, and at level 5 properties."""
        packet_id = fields.integer(2)
        return packet_id, properties.read(fields) if self._level == 5 else properties.NONE

    def _check_options(self, options: int) -> None:
        if self._level == 4:
            is_good = options <= 2
        else:
            is_good = not options & RESERVED and options & 3 != 3
            is_good = is_good and options & RETAIN_HANDLING != RETAIN_HANDLING
        if not is_good:
            raise RefusedError(f"a SUBSCRIBE with options {options:08b}", Code.PROTOCOL_ERROR)

    def _add(self, name: str, options: int, identifier: int) -> Code:
        if self._level == 5 and name.startswith(SHARED):
            return Code.NO_SHARED_SUBSCRIPTIONS
        no_local, as_published = bool(options & NO_LOCAL), bool(options & AS_PUBLISHED)
        subscription = Subscription(options & 3, no_local, as_published, identifier)
        return self._router.subscribe(self._session, name, subscription)

    def _unsubscribe(self, fields: Fields) -> None:
        packet_id, _ = self._read_head(fields)
        codes = bytearray()
        for name, _ in read_filters(fields):
            found = self._router.unsubscribe(self._session, name)
            codes.append(Code.SUCCESS if found else Code.NO_SUBSCRIPTION_EXISTED)
        told = bytes(codes) if self._level == 5 else b""
        self._client.answer(answer_filters(self._level, Kind.UNSUBACK, packet_id, told))


def _read_answer(fields: Fields) -> tuple[int, int]:
    """Return the packet id of an acknowledgement and its reason code."""
    packet_id = fields.integer(2)
    return packet_id, properties.read_reason(fields)[0]
