"""What goes out to a client of MQTT 5: no more at once, and nothing larger, than it takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from amqtt.mqtt.packet import PUBREL

from broker.embedded.outbox import MAX_ID, Mail, Outbox
from broker.embedded.packets import Message
from broker.embedded.packets5 import answer, property_bytes
from broker.embedded.properties import Identifiers
from broker.embedded.reason_codes import Code
from broker.embedded.settings import ServerSettings
from broker.embedded.subscriptions import AS_PUBLISHED, GRANTED_QOS, NUMBERED
from broker.embedded.wire import Wire

LETTER_BYTES: Final = 200  # that each takes beside its message


@dataclass(slots=True)
class Letter:
    """A message for one client, until it has acknowledged it; without what nobody needs again."""

    message: Message | None
    qos: int
    retain: bool
    identifiers: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        message, own = self.message, LETTER_BYTES + 8 * len(self.identifiers)
        return own + (message.size_bytes + len(message.topic) if message else 0)


class Backlog:
    """The messages at QoS 1 and 2 that one session is owed: sent, or waiting for their turn."""

    def __init__(
        self,
        settings: ServerSettings,
        on_queued: Callable[[int], None],
        on_slow: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._on_queued = on_queued
        self._on_slow = on_slow
        self.waiting: deque[Letter] = deque()
        self.sent: dict[int, Letter] = {}  # by packet id
        self.size_bytes = 0
        self.identifiers = Identifiers()
        self._last_id = 0

    def address(self, message: Message, grant: int, under: str = "") -> Letter:
        """Return a message as this client is to have it; retained, `under` a filter of it."""
        identifiers: tuple[int, ...] = ()
        if grant & NUMBERED:
            found = self.identifiers
            identifiers = found.of_filter(under) if under else found.of_topic(message.topic)
        retain = bool(under or (message.retain and grant & AS_PUBLISHED))
        return Letter(message, min(message.qos, GRANTED_QOS[grant & 3]), retain, identifiers)

    def admits(self, letter: Letter, unsent_bytes: int = 0) -> bool:
        """Tell whether one more may wait, besides what is on its way to the client."""
        limits, size_bytes = self._settings, letter.size_bytes
        count = len(self.waiting) + len(self.sent)
        total_bytes = self.size_bytes + unsent_bytes + size_bytes
        if total_bytes > limits.max_unsent_bytes or count >= limits.max_unsent:
            self._on_slow()
            return False
        self._on_queued(size_bytes)
        return True

    def put(self, letter: Letter) -> None:
        """Have one wait that was admitted."""
        self.waiting.append(letter)
        self.size_bytes += letter.size_bytes

    def take(self) -> Letter:
        """Return the next that waits; what becomes of it is the caller's."""
        letter = self.waiting.popleft()
        self.size_bytes -= letter.size_bytes
        return letter

    def send(self, letter: Letter) -> int:
        """Book one as sent, and return its packet id."""
        while True:
            self._last_id = self._last_id % MAX_ID + 1
            if self._last_id not in self.sent:
                break
        self.sent[self._last_id] = letter
        self.size_bytes += letter.size_bytes
        return self._last_id

    def strip(self, letter: Letter) -> None:
        """Let go of the message of one that was sent: nobody will want it again."""
        self.size_bytes -= letter.size_bytes
        letter.message = None
        self.size_bytes += letter.size_bytes

    def forget(self, packet_id: int) -> None:
        """Book off one that was sent."""
        self.size_bytes -= self.sent.pop(packet_id).size_bytes

    def clear(self) -> None:
        """Let go of all."""
        self.waiting.clear()
        self.sent.clear()
        self.size_bytes = 0


@dataclass(frozen=True, slots=True)
class Window:
    """What a client takes. `is_kept`: what it has not acknowledged is sent again another time."""

    receive_maximum: int
    max_packet_bytes: int
    is_kept: bool


class Outbox5(Outbox):
    """An outbox with the properties of each message, and a backlog that may outlive it."""

    def __init__(
        self,
        wire: Wire,
        settings: ServerSettings,
        mail: Mail,
        on_queued: Callable[[int], None],
        on_slow: Callable[[], None],
        on_large: Callable[[int], None],
        window: Window,
        backlog: Backlog,
        now_s: Callable[[], float],
    ) -> None:
        super().__init__(wire, settings, mail, on_queued, on_slow)
        self._on_large = on_large
        self._window = window
        self._now_s = now_s
        self._again: deque[int] = deque()  # packet ids of what an earlier connection was sent
        self._in_flight = 0
        self.backlog = backlog

    @property
    def unsent_bytes(self) -> int:
        """How much waits to be sent, or to be acknowledged."""
        return super().unsent_bytes + self.backlog.size_bytes

    def resume(self) -> None:
        """Send again what the client has not acknowledged on an earlier connection (4.4)."""
        self._again.extend(self.backlog.sent)
        self._send_waiting()

    def send(self, message: Message, grant: int, under: str = "") -> bool:
        """See `Outbox`."""
        letter = self.backlog.address(message, grant, under)
        if self.is_closed or not self.backlog.admits(letter, super().unsent_bytes):
            return False
        if not letter.qos:
            return self._post(letter, 0)
        self.backlog.put(letter)
        self._send_waiting()
        if self.backlog.waiting:
            letter.message = message.kept()  # of what was read with it, nothing waits along
        return True

    def _send_waiting(self) -> None:
        backlog = self.backlog
        while self._in_flight < self._window.receive_maximum:
            if self._again:
                self._in_flight += self._send_again(self._again.popleft())
            elif backlog.waiting:
                self._in_flight += self._send_next(backlog.take())
            else:
                return

    def _send_again(self, packet_id: int) -> bool:
        letter = self.backlog.sent[packet_id]
        message = letter.message
        if message is None:
            self.answer(answer(PUBREL, packet_id, Code.SUCCESS))
        elif message.is_over(self._now_s()) or not self._post(letter, packet_id, dup=True):
            self.backlog.forget(packet_id)
            return False
        return True

    def _send_next(self, letter: Letter) -> bool:
        message = letter.message
        if message is None or message.is_over(self._now_s()):
            return False
        packet_id = self.backlog.send(letter)
        if not self._post(letter, packet_id):
            self.backlog.forget(packet_id)
            return False
        if self._window.is_kept:
            letter.message = message.kept()
        else:
            self.backlog.strip(letter)
        return True

    def _post(self, letter: Letter, packet_id: int, *, dup: bool = False) -> bool:
        """Send one now; false for one that is larger than the client takes (3.1.2.11.4)."""
        message = letter.message
        if message is None:
            return False
        found = property_bytes(message, letter.identifiers, self._now_s())
        begin = message.begin(letter.qos, packet_id, letter.retain, dup, found)
        size_bytes = len(begin) + len(message.payload)
        if size_bytes > self._window.max_packet_bytes:
            self._on_large(size_bytes)
            return False
        self._put_both(begin, message.payload)
        return True

    def answer(self, packet: bytes) -> None:
        """See `Outbox`; what is larger than the client takes is not sent."""
        if len(packet) <= self._window.max_packet_bytes:
            super().answer(packet)

    def on_puback(self, packet_id: int) -> None:
        """See `Outbox`."""
        letter = self.backlog.sent.get(packet_id)
        if letter is not None and letter.qos == 1:
            self._done(packet_id)

    def on_received(self, packet_id: int, code: int) -> None:
        """Take note of a PUBREC; with a reason code that is an error it is the end of a message."""
        letter = self.backlog.sent.get(packet_id)
        if letter is None or letter.qos != 2:
            self.answer(answer(PUBREL, packet_id, Code.ID_NOT_FOUND))
        elif code >= 0x80:
            self._done(packet_id)
        else:
            self.backlog.strip(letter)
            self.answer(answer(PUBREL, packet_id, Code.SUCCESS))

    def on_pubcomp(self, packet_id: int) -> None:
        """See `Outbox`."""
        letter = self.backlog.sent.get(packet_id)
        if letter is not None and letter.qos == 2:
            self._done(packet_id)

    async def room(self) -> None:
        """Wait while the client does not keep up. Raises `OSError` when it is gone."""
        await super().room()
        while self.backlog.waiting:
            self._acknowledged.clear()
            await self._acknowledged.wait()

    def _done(self, packet_id: int) -> None:
        self.backlog.forget(packet_id)
        if packet_id in self._again:
            self._again.remove(packet_id)  # an acknowledgement that comes before it was asked for
        else:
            self._in_flight -= 1
        self._send_waiting()
        self._acknowledged.set()
