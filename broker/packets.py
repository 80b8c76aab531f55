"""paho's client with fewer copies of what is large; of its internals, what is told here.

An artifact's bytes went through five copies on their way through paho 2.2: `_packet_read` appends
a packet in pieces, `decode_publish` copies it twice, `_packet_write` cuts what is left to send out
of the packet at each attempt. At 256 KiB a message that cost three times as much as the kernel's
own work, most of it for memory that was mapped anew each time.
"""

from __future__ import annotations

import ssl
import time
from typing import Any, Final

import paho.mqtt.client as mqtt
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.exception import MalformedPacket

_MIN_PACKET_BYTES: Final = 2  # of any packet: its type and the length of the rest
_QOS_0: Final = 0x30  # a PUBLISH at QoS 0, whose retain flag is the lowest bit
_FLAGS: Final = 0xF6


class PacketClient(mqtt.Client):
    """A client of MQTT 3.1.1 that reads a packet into one buffer, and sends without cutting."""

    def _packet_queue(
        self,
        command: int,
        packet: Any,
        mid: int,
        qos: int,
        info: mqtt.MQTTMessageInfo | None = None,
    ) -> MQTTErrorCode:
        # paho sends `packet[pos:]`, which of a view is no copy.
        view: Any = memoryview(packet)
        if self._thread is None or not self._out_packet:
            return super()._packet_queue(command, view, mid, qos, info)
        # paho's thread has something to send yet, and looks for more then: it is awake.
        self._out_packet.append(
            {
                "command": command,
                "mid": mid,
                "qos": qos,
                "pos": 0,
                "to_process": len(view),
                "packet": view,
                "info": info,
            }
        )
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _packet_read(self) -> MQTTErrorCode:
        """Read what there is of one packet, and handle it when it is whole."""
        coming: Any = self._in_packet
        try:
            if not coming["have_remaining"]:
                self._read_head(coming)
            while coming["to_process"]:
                at = coming["remaining_length"] - coming["to_process"]
                coming["to_process"] -= self._read_into(memoryview(coming["packet"])[at:])
        except BlockingIOError:
            return MQTTErrorCode.MQTT_ERR_AGAIN
        except ValueError:
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        except OSError:
            return MQTTErrorCode.MQTT_ERR_CONN_LOST
        try:
            handled = self._handle(coming)
        except MalformedPacket:
            handled = MQTTErrorCode.MQTT_ERR_PROTOCOL
        self._in_packet = _nothing()
        with self._msgtime_mutex:
            self._last_bytes_received = time.monotonic()
        return handled

    def _read_head(self, coming: Any) -> None:
        """Read type and length. Raises ValueError for a length of more than four bytes."""
        while True:
            # Each is read as far as it is sure to be of this packet.
            data = self._sock_recv(1 if coming["command"] else _MIN_PACKET_BYTES)
            if not data:
                raise ConnectionError
            for byte in data:
                if not coming["command"]:
                    coming["command"] = byte
                    continue
                coming["remaining_count"].append(byte)
                if len(coming["remaining_count"]) > 4:
                    raise ValueError("the length of a packet has at most four bytes")
                coming["remaining_length"] += (byte & 127) * coming["remaining_mult"]
                coming["remaining_mult"] *= 128
                if byte < 128:
                    coming["have_remaining"] = 1
                    coming["to_process"] = coming["remaining_length"]
                    coming["packet"] = bytearray(coming["remaining_length"])
                    return

    def _read_into(self, room: memoryview) -> int:
        """Fill `room` as far as that goes at once; as `_sock_recv` does."""
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

    def _handle(self, coming: Any) -> MQTTErrorCode:
        if coming["command"] & _FLAGS != _QOS_0:
            return self._packet_handle()
        packet = memoryview(coming["packet"])
        end = 2 + int.from_bytes(packet[:2], "big")
        if not 2 < end <= len(packet):
            raise MalformedPacket("a PUBLISH without a topic")
        message = mqtt.MQTTMessage(topic=bytes(packet[2:end]))
        message.payload = bytes(packet[end:])
        message.retain = bool(coming["command"] & 1)
        self._handle_on_message(message)
        return MQTTErrorCode.MQTT_ERR_SUCCESS


def _nothing() -> Any:
    """Return paho's state between two packets."""
    return {
        "command": 0,
        "have_remaining": 0,
        "remaining_count": [],
        "remaining_mult": 1,
        "remaining_length": 0,
        "packet": bytearray(),
        "to_process": 0,
        "pos": 0,
    }
