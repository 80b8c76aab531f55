"""paho's client with fewer copies of what is large; of its internals, what is told here.

An artifact's bytes went through five copies on their way through paho 2.2: `_packet_read` appends
a packet in pieces, `decode_publish` copies it twice, `_packet_write` cuts what is left to send out
of the packet at each attempt. At 256 KiB a message that cost three times as much as the kernel's
own work, most of it for memory that was mapped anew each time. What is large is not put behind its
head either, as `_send_publish` does: the system gathers both. How it reads is in
`broker.client.paho_reading`.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterable
from typing import Any, Final

from paho.mqtt.enums import MQTTErrorCode

from broker.client.paho_reading import ReadingClient, mqtt
from broker.protocol.events import Outgoing

__all__ = ["PacketClient", "mqtt"]

_QOS_0: Final = 0x30  # a PUBLISH at QoS 0, whose retain flag is the lowest bit
_QOS_1: Final = 0x32
GATHERED_BYTES: Final = 16 * 1024  # of a payload; less is copied sooner than told of apart
STOP_TIMEOUT_S: Final = 5.0  # for the thread of a connection that is at its end
_PUBACK: Final = 0x40


class PacketClient(ReadingClient):
    """A client of MQTT 3.1.1 that reads many packets at once, and sends without cutting.

    Whoever publishes sends what the socket takes. paho leaves that to its own thread, which has to
    be woken by a byte of its own, and then waits for the interpreter.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        """See paho's."""
        self._sending = threading.Lock()
        super().__init__(*args, **named)

    def send(self, numbered: Iterable[tuple[int, Outgoing]]) -> bool:
        """Send messages, each with its number (1 to 65535); false without a connection.

        Those at QoS 1 that follow each other leave together, and so does what acknowledges them:
        `on_acknowledged` has their numbers. Those at QoS 0 have left when `on_publish` has theirs.
        paho's `publish` keeps each message, with a condition and two locks, for a connection that
        would take them up again, of which we have none.
        """
        if self._sock is None:
            return False
        together, sent = bytearray(), MQTTErrorCode.MQTT_ERR_SUCCESS
        for number, message in numbered:
            if message.qos:
                self._pack(together, number, message)
                continue
            if together:
                sent = sent or self._packet_queue(_QOS_1, together, 0, 1)
                together = bytearray()
            topic, info = message.topic.encode(), mqtt.MQTTMessageInfo(number)
            sent = sent or self._send_publish(
                number, topic, message.payload, 0, message.retain, info=info
            )
        if together:
            sent = sent or self._packet_queue(_QOS_1, together, 0, 1)
        return not sent

    def _pack(self, packet: bytearray, number: int, message: Outgoing) -> None:
        topic = message.topic.encode()
        packet.append(_QOS_1 | message.retain)
        self._pack_remaining_length(packet, 4 + len(topic) + len(message.payload))
        packet += len(topic).to_bytes(2, "big") + topic + number.to_bytes(2, "big")
        packet += message.payload

    def _create_socket(self) -> mqtt.SocketLike:
        """Connect. A host's name goes as bytes, if it can.

        Of a text Python finds out whether it is in ASCII with tables of Unicode, of 0.3 MiB. What
        looks for a proxy wants a text.
        """
        if vars(mqtt)["socks"] is None and self._host.isascii():
            self._host = self._host.encode()  # type: ignore[assignment]
        return super()._create_socket()

    def _get_proxy(self) -> dict[str, Any] | None:
        if vars(mqtt)["socks"] is not None:  # else no proxy is looked for
            import urllib.request  # noqa: F401 - paho has an empty one: broker.client.paho_reading
        return super()._get_proxy()

    def _packet_queue(
        self,
        command: int,
        packet: Any,
        mid: int,
        qos: int,
        info: mqtt.MQTTMessageInfo | None = None,
    ) -> MQTTErrorCode:
        # paho sends `packet[pos:]`, which of a view is no copy.
        view: Any = packet if isinstance(packet, _Gathered) else memoryview(packet)
        if self._thread is None:
            return super()._packet_queue(command, view, mid, qos, info)
        packed: Any = {
            "command": command,
            "mid": mid,
            "qos": qos,
            "pos": 0,
            "to_process": len(view),
            "packet": view,
            "info": info,
        }
        # After other packets paho has more to do than to send them.
        if (qos or command == _PUBACK) and self._send_at_once(packed):
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        # With something to send yet paho's thread is awake, and looks for more then. It may have
        # sent that before this packet stands behind it, which is the first then.
        waiting = self._out_packet
        awake = bool(waiting)
        waiting.append(packed)
        with contextlib.suppress(IndexError):  # it is sent already
            awake = awake and waiting[0] is not packed
        if not awake:
            self._wake()
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def loop_stop(self) -> MQTTErrorCode:
        """End the thread, which does not keep the process from ending, and wait for that a while.

        paho's waits for ever, be it for a callback that hangs.
        """
        thread = self._thread
        if thread is None:
            return MQTTErrorCode.MQTT_ERR_INVAL
        self._thread_terminate = True
        if thread is not threading.current_thread():
            thread.join(STOP_TIMEOUT_S)
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _thread_main(self) -> None:
        """Serve the connection; whatever ends paho's thread ends the connection, and is told."""
        try:
            super()._thread_main()
        finally:
            if self._sock is not None:
                self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)

    def _send_publish(
        self,
        mid: int,
        topic: bytes,
        payload: bytes | bytearray = b"",
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        info: mqtt.MQTTMessageInfo | None = None,
        properties: Any = None,
    ) -> MQTTErrorCode:
        """Queue a message; what is large, without QoS and TLS, is not copied for that."""
        sock = self._sock
        plain = type(sock) is socket.socket and hasattr(sock, "sendmsg")
        if qos or len(payload) < GATHERED_BYTES or not plain:
            return super()._send_publish(mid, topic, payload, qos, retain, dup, info, properties)
        head = bytearray([_QOS_0 | retain])
        self._pack_remaining_length(head, 2 + len(topic) + len(payload))
        self._pack_str16(head, topic)
        return self._packet_queue(_QOS_0, _Gathered(head, payload), mid, qos, info)

    def _send_at_once(self, packed: Any) -> bool:
        """Send a packet if none waits before it; tell whether it was taken, in part at least.

        The rest is left to paho's thread, before all others, and so is a fault of the socket. By
        TLS nothing is sent: two threads may not use such a connection at a time.
        """
        if type(self._sock) is not socket.socket or self._sending.locked():
            return False
        # Not by `acquire`, which a Ctrl-C can leave locked; whoever has it has it for as long as
        # the socket takes what it takes at once.
        with self._sending:
            if self._out_packet:
                return False
            try:
                packed["pos"] = self._sock_send(packed["packet"])
            except OSError:
                return False
            packed["to_process"] -= packed["pos"]
            if packed["to_process"]:
                self._out_packet.appendleft(packed)
                self._wake()
        with self._msgtime_mutex:
            self._last_msg_out = time.monotonic()
        return True

    def _packet_write(self) -> MQTTErrorCode:
        with self._sending:
            return super()._packet_write()

    def _wake(self) -> None:
        """Have paho's thread look for what it is to send."""
        woken_by = self._sockpairW
        if woken_by is not None:
            with contextlib.suppress(BlockingIOError):  # it has not looked at an earlier one yet
                woken_by.send(b"0")

    def _sock_send(self, buf: Any) -> int:
        """Send what the socket takes of `packet[pos:]`."""
        if not isinstance(buf, list):
            return super()._sock_send(buf)
        sock: Any = self._sock
        if sock is None:
            raise ConnectionError
        sent: int = sock.sendmsg(buf)
        return sent


class _Gathered:
    """A packet in two pieces, of which a slice to the end is a list of views."""

    __slots__ = ("_head", "_payload")

    def __init__(self, head: bytearray, payload: bytes | bytearray) -> None:
        self._head, self._payload = memoryview(head), memoryview(payload)

    def __len__(self) -> int:
        return len(self._head) + len(self._payload)

    def __getitem__(self, wanted: slice) -> list[memoryview]:
        start: int = wanted.start
        in_head = len(self._head)
        if start < in_head:
            return [self._head[start:], self._payload]
        return [self._payload[start - in_head :]]
