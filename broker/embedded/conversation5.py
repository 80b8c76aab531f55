"""A client of MQTT 5: what is done with its packets where MQTT 3.1.1 knows no such."""

from __future__ import annotations

from amqtt.mqtt.packet import PUBACK, PUBCOMP, PUBREC, PUBREL, SUBACK, UNSUBACK

from broker.embedded import packets5 as five
from broker.embedded.conversation import Conversation
from broker.embedded.outbox5 import Outbox5
from broker.embedded.packets import Bytes, Message
from broker.embedded.peer import Client
from broker.embedded.reason_codes import Code, MalformedPacketError
from broker.embedded.routing import Distribution
from broker.embedded.subscriptions import AS_PUBLISHED, NUMBERED, OWN, QOS_GRANTS

SHARED = "$share/"


class Conversation5(Conversation):
    """A conversation with reason codes."""

    sizes = five.SIZES

    def __init__(self, broker: Distribution, client: Client, outbox: Outbox5) -> None:
        super().__init__(broker, client)
        self._outbox = outbox

    def read(self, first: int, body: Bytes) -> tuple[Message, int]:
        """See `Conversation`; here a message's time begins."""
        message, packet_id = five.read_publish(first, body)
        message.start_clock(self._loop.time())
        return message, packet_id

    @staticmethod
    def answer(kind: int, packet_id: int, _taken: bool = True) -> bytes:
        """See `Conversation`."""
        return five.answer(kind, packet_id, Code.SUCCESS if _taken else Code.NOT_AUTHORIZED)

    def goodbye(self, body: Bytes) -> bool:
        """See `Conversation`; one with a reason is an end like any other, and has the will told."""
        code, expiry_s = five.read_goodbye(body)
        if expiry_s is not None:
            if expiry_s and not self._client.arrival.session.expiry_s:
                raise MalformedPacketError("a session that was none", Code.PROTOCOL_ERROR)
            self._client.expiry_s = min(expiry_s, self._broker.max_session_s)
        return code == Code.SUCCESS

    def on_puback(self, body: Bytes) -> None:
        """See `Conversation`; with whatever code, nobody sends it again."""
        self._outbox.on_puback(five.read_answer(PUBACK, body)[0])

    def on_pubrec(self, body: Bytes) -> None:
        """See `Conversation`."""
        self._outbox.on_received(*five.read_answer(PUBREC, body))

    def on_pubcomp(self, body: Bytes) -> None:
        """See `Conversation`."""
        self._outbox.on_pubcomp(five.read_answer(PUBCOMP, body)[0])

    def on_release(self, body: Bytes) -> None:
        """See `Conversation`."""
        packet_id, _ = five.read_answer(PUBREL, body)
        code = Code.SUCCESS if self.let_go(packet_id) else Code.ID_NOT_FOUND
        self._outbox.answer(five.answer(PUBCOMP, packet_id, code))

    def on_subscribe(self, body: Bytes) -> None:
        """See `Conversation`."""
        packet_id, identifier, filters = five.read_subscribe(body)
        self.check_filters([name for name, _ in filters])
        codes, refused, due = bytearray(), [], []
        for name, options in filters:
            is_new, grant = name not in self._client.filters, _grant(options, identifier)
            why = self._subscribe(name, grant)
            self._outbox.backlog.identifiers.give(name, 0 if why else identifier)
            codes.append(why or options & 3)
            if why:
                refused.append(name)
            elif _wants_retained(options, is_new=is_new):
                due.append((name, grant))
        self._outbox.answer(five.answer_all(SUBACK, packet_id, bytes(codes)))
        self.count_refused(refused)
        for name, grant in due:
            self._broker.tell_retained(self._client, name, grant)

    def _subscribe(self, name: str, grant: int) -> Code:
        if name.startswith(SHARED):
            return Code.NO_SHARED_SUBSCRIPTIONS
        return self._broker.subscribe(self._client, name, grant)

    def unsubscribe(self, name: str) -> None:
        """See `Conversation`."""
        super().unsubscribe(name)
        self._outbox.backlog.identifiers.give(name, 0)

    def on_unsubscribe(self, body: Bytes) -> None:
        """See `Conversation`."""
        packet_id, names = five.read_unsubscribe(body)
        self.check_filters(names)
        codes = bytearray()
        for name in names:
            found = name in self._client.filters
            codes.append(Code.SUCCESS if found else Code.NO_SUBSCRIPTION_EXISTED)
            self.unsubscribe(name)
        self._outbox.answer(five.answer_all(UNSUBACK, packet_id, bytes(codes)))


def _grant(options: int, identifier: int) -> int:
    own = 0 if options & five.NO_LOCAL else OWN
    as_published = AS_PUBLISHED if options & five.AS_PUBLISHED else 0
    return QOS_GRANTS[options & 3] | own | as_published | (NUMBERED if identifier else 0)


def _wants_retained(options: int, *, is_new: bool) -> bool:
    """Tell whether a subscription is sent what is retained (3.3.1.3)."""
    handling = (options & five.RETAIN_HANDLING) >> 4
    return handling == 0 or (handling == 1 and is_new)
