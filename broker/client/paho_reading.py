"""paho's client, reading as much as there is at once, and taking all packets in it together.

paho 2.2 asks the system for each packet several times (its type, each byte of its length, the
rest), waits in `select` before every packet, takes three locks and makes a condition variable for
a message, sends each acknowledgement by itself. For a fleet's births that was more than the
coordinator's own work. Of paho's internals this rests on what tests/unit/test_reading.py tries:
`loop_read` is called when there is something to read, or bytes are `pending` with TLS; the rest
of a packet is looked for in `_in_packet` by `_packet_handle`; what `_packet_queue` takes is sent.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from typing import Any, Final

from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.exception import MQTTException

from broker.protocol.events import Incoming
from broker.protocol.messages import MAX_CHUNK_BYTES
from broker.system.lean import without

with without("urllib.request"):
    import paho.mqtt.client as mqtt

__all__ = ["ReadingClient", "mqtt"]

READ_BYTES: Final = 64 * 1024
LARGE_BYTES: Final = 16 * 1024  # a packet of this size is read into memory of its own
MAX_BYTES: Final = 2 * MAX_CHUNK_BYTES  # of a packet that are kept: nothing of ours is larger
_ROUNDS: Final = 4  # of reading, before it is looked whether there is something to send
_HEAD_BYTES: Final = 512  # read after a large packet, which is likely followed by another
_MIN_PACKET_BYTES: Final = 2  # of any packet: its type and the length of the rest
_MAX_LENGTH_BYTES: Final = 4
_PUBLISH: Final = 0x30
_PUBACK: Final = 0x40
_NUMBER_BYTES: Final = 2  # of a message at QoS 1
_PUBACK_HEAD: Final = b"\x40\x02"


class ReadingClient(mqtt.Client):
    """A client of MQTT 3.1.1 at QoS 0 and 1; messages come by `on_messages`, not `on_message`.

    `on_acknowledged` is given the numbers of the messages at QoS 1 that the broker has taken.
    """

    on_messages: Callable[[list[Incoming]], None] | None = None
    on_acknowledged: Callable[[list[int]], None] | None = None

    def __init__(self, *args: Any, **named: Any) -> None:
        """See paho's."""
        super().__init__(*args, **named)
        self._buffer = bytearray(READ_BYTES)
        self._filled = 0
        self._reach = READ_BYTES
        self._large: _Large | None = None
        self._is_full = False  # the buffer was filled: there may be more to read at once
        self._acks = bytearray()

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:  # noqa: ARG002 - paho's
        """Take what there is, and handle the packets that are whole; paho calls this."""
        handled = MQTTErrorCode.MQTT_ERR_SUCCESS
        try:
            for _ in range(_ROUNDS):
                self._is_full = False
                handled = self._take()
                if handled or not self._is_full:
                    break
        except BlockingIOError:
            pass
        except OSError:
            handled = MQTTErrorCode.MQTT_ERR_CONN_LOST
        if handled:
            return self._loop_rc_handle(handled)
        if self._acks:
            acks, self._acks = self._acks, bytearray()
            self._packet_queue(_PUBACK, acks, 0, 0)
        return handled

    def _take(self) -> MQTTErrorCode:
        if self._large is None:
            room = memoryview(self._buffer)[self._filled : self._filled + self._reach]
            count = self._receive(room)
            self._filled += count
            self._is_full, self._reach = count == len(room), READ_BYTES
            handled = self._cut()
            if handled or self._large is None:
                return handled
        self._is_full = False
        large: _Large = self._large
        while (left := large.size_bytes - large.filled) > 0:
            room = memoryview(large.body)[large.filled :] or memoryview(self._buffer)[:left]
            large.filled += self._receive(room)
        self._large, self._reach = None, _HEAD_BYTES
        return self._handle([(large.first, memoryview(large.body))])

    def _receive(self, room: memoryview) -> int:
        """Fill `room` as far as that goes at once. Raises OSError when the connection has ended."""
        sock: Any = self._sock
        if sock is None:
            raise ConnectionError
        try:
            count: int = sock.recv_into(room)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            self._call_socket_register_write()
            raise BlockingIOError from None
        if not count:
            raise ConnectionError
        with self._msgtime_mutex:
            self._last_bytes_received = time.monotonic()  # a slow packet is no silence
        return count

    def _cut(self) -> MQTTErrorCode:
        """Handle the packets that are whole, and keep the rest for what follows."""
        data, end, at = self._buffer, self._filled, 0
        view = memoryview(data)
        packets, stop = [], _MIN_PACKET_BYTES
        while (found := _body(data, at, end)) is not None:
            begin, stop = found
            if stop > end:
                break
            packets.append((data[at], view[begin:stop]))
            at = stop
        handled = self._handle(packets)
        if found is None and end - at > _MAX_LENGTH_BYTES:
            return MQTTErrorCode.MQTT_ERR_PROTOCOL  # a length has four bytes at most
        if found is not None and stop - at >= LARGE_BYTES:
            self._large = _Large(data[at], stop - begin, view[begin:end])
            at = end
        view[: end - at] = view[at:end]
        self._filled = end - at
        return handled

    def _handle(self, packets: list[tuple[int, memoryview]]) -> MQTTErrorCode:
        """Hand over all messages, to be acknowledged together; leave other packets to paho."""
        messages, taken, others = [], [], []
        handled = MQTTErrorCode.MQTT_ERR_SUCCESS
        for first, body in packets:
            if first == _PUBACK and len(body) == _NUMBER_BYTES:
                taken.append(int.from_bytes(body, "big"))
                continue
            if first & 0xF0 != _PUBLISH:
                others.append((first, body))
                continue
            message = _message(first, body, self._acks)
            if message is None:
                handled = MQTTErrorCode.MQTT_ERR_PROTOCOL
                break
            messages.append(message)
        if messages and self.on_messages is not None:
            self.on_messages(messages)
        if taken and self.on_acknowledged is not None:
            self.on_acknowledged(taken)
        for first, body in others:
            handled = handled or self._handle_other(first, body)
        return handled

    def _handle_other(self, first: int, body: memoryview) -> MQTTErrorCode:
        if self._sock is None:
            return MQTTErrorCode.MQTT_ERR_SUCCESS  # one before has ended the connection
        coming: Any = self._in_packet
        coming["command"], coming["remaining_length"] = first, len(body)
        coming["packet"] = bytearray(body)
        try:
            return self._packet_handle()
        except MQTTException:
            return MQTTErrorCode.MQTT_ERR_PROTOCOL


class _Large:
    """A large packet on its way; of one that nobody of ours has sent, the beginning is enough."""

    __slots__ = ("body", "filled", "first", "size_bytes")

    def __init__(self, first: int, size_bytes: int, begun: memoryview) -> None:
        self.first = first
        self.size_bytes = size_bytes
        self.body = bytearray(min(size_bytes, MAX_BYTES))
        self.filled = len(begun)
        self.body[: self.filled] = begun


def _body(data: bytearray, at: int, end: int) -> tuple[int, int] | None:
    """Return where the body of the packet at `at` begins and ends; none while nobody can tell."""
    if end - at < _MIN_PACKET_BYTES:
        return None
    length, shift, begin = 0, 0, at + 1
    while begin < min(end, at + 1 + _MAX_LENGTH_BYTES):
        byte = data[begin]
        length |= (byte & 0x7F) << shift
        shift, begin = shift + 7, begin + 1
        if byte < 0x80:
            return begin, begin + length
    return None


def _message(first: int, body: memoryview, acks: bytearray) -> Incoming | None:
    """Return the message of a PUBLISH, and add what acknowledges it; none if it is none."""
    qos, size = first >> 1 & 3, len(body)
    at = 2 + int.from_bytes(body[:2], "big")
    begin = at + 2 if qos else at
    if qos > 1 or not 2 < at <= size or begin > size:
        return None
    if qos:
        acks += _PUBACK_HEAD
        acks += body[at:begin]
    try:
        topic = str(body[2:at], "utf-8")
    except UnicodeDecodeError:
        topic = ""  # no topic of ours; the service counts it as garbage
    return Incoming(topic, bytes(body[begin:]), bool(first & 1))
