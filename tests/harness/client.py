"""A plain paho client, not a `Link`, that collects what it is sent."""

from __future__ import annotations

import queue
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode

DEADLINE_S = 60.0


class Client:
    """One that `try_connect` connects; `got` has its messages, `why` the broker's last words."""

    def __init__(
        self,
        port: int,
        name: str,
        will: tuple[str, bytes] | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        keepalive_s: int = 60,
        level: int = 4,
        websocket: str = "",
        page: str = "",
    ) -> None:
        """`websocket` is the path of one, `page` the origin that a browser would name."""
        self.port, self.client_id, self.will, self.tls = port, name, will, tls
        self.keepalive_s, self.level = keepalive_s, MQTTProtocolVersion(level)
        self.websocket, self.page = websocket, page
        self.got: queue.Queue[mqtt.MQTTMessage] = queue.Queue()
        self.codes: list[int] = []
        self.why = ""

    def try_connect(self) -> bool:
        """Connect; tell whether the broker took it."""
        self.answered, self.gone = threading.Event(), threading.Event()
        self.answer: int | None = None
        self.paho = self._made()
        try:
            self.paho.connect("127.0.0.1", self.port, self.keepalive_s)
        except OSError as error:
            self.why = str(error)
            _close_what_is_left(error)
            return False
        self.paho.loop_start()
        if self._wait() == 0:
            return True
        self.stop()
        return False

    def _made(self) -> mqtt.Client:
        made = mqtt.Client(
            CallbackAPIVersion.VERSION2, self.client_id, protocol=self.level,
            reconnect_on_failure=False, transport="websockets" if self.websocket else "tcp",
        )  # fmt: skip
        if self.websocket:
            made.ws_set_options(self.websocket, {"Origin": self.page} if self.page else None)
        if self.tls is not None:
            made.tls_set_context(self.tls)
        if self.will is not None:
            made.will_set(self.will[0], self.will[1], 1)
        made.on_socket_open = _no_delay
        made.on_connect = lambda _c, _d, _f, reason, _p: self._answered(reason)
        made.on_subscribe = lambda _c, _d, _m, reasons, _p: self._subscribed(reasons)
        made.on_unsubscribe = lambda *_: self.answered.set()
        made.on_publish = lambda _c, _d, _m, reason, _p: self._answered(reason)
        made.on_disconnect = lambda *_: self._closed()
        made.on_message = lambda _c, _d, message: self.got.put(message)
        return made

    def ask(self, what: Callable[[], object]) -> int | None:
        """Say something; return the code of the answer, or none when thrown out for it."""
        self.answered.clear()
        self.answer = None
        what()
        answer = self._wait()
        if answer is None and self.gone.is_set():
            self.thrown_out()
        return answer

    def thrown_out(self) -> None:
        """Called when the end of the connection is all the answer."""
        raise AssertionError(f"{self.client_id}: no answer, but the end")

    def subscribe(self, filter_: str, qos: int = 1) -> int | None:
        """Subscribe; return the code of the answer, which proves nothing."""
        return self.ask(lambda: self.paho.subscribe(filter_, qos))

    def unsubscribe(self, filter_: str) -> None:
        self.ask(lambda: self.paho.unsubscribe(filter_))

    def publish(self, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False) -> bool:
        """Publish; tell whether it was sent, at QoS 1 acknowledged, which proves nothing."""
        return self.ask(lambda: self.paho.publish(topic, payload, qos, retain)) is not None

    def next(self) -> tuple[str, bytes]:
        message = self.got.get(timeout=DEADLINE_S)
        return message.topic, bytes(message.payload)

    def heard_until(self, end: tuple[str, bytes]) -> list[tuple[str, bytes]]:
        """Return what has come before the message `end`."""
        heard = []
        while (message := self.next()) != end:
            heard.append(message)
        return heard

    def break_off(self) -> None:
        """End the connection without a word, as a power cut would."""
        sock = self.paho.socket()
        assert sock is not None
        sock.shutdown(socket.SHUT_RDWR)
        assert self.gone.wait(DEADLINE_S)

    def stop(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def _wait(self) -> int | None:
        assert self.answered.wait(DEADLINE_S), f"{self.client_id}: no answer"
        return self.answer

    def _answered(self, *reasons: ReasonCode) -> None:
        self.answer = max(one.value for one in reasons)
        self.why = ", ".join(map(str, reasons))
        self.answered.set()

    def _subscribed(self, reasons: list[ReasonCode]) -> None:
        self.codes += [one.value for one in reasons]
        self._answered(*reasons)

    def _closed(self) -> None:
        self.gone.set()
        self.answered.set()


def _close_what_is_left(error: OSError) -> None:
    """Close the socket that paho leaves open where the handshake fails, as at a start."""
    trace = error.__traceback__
    while trace is not None:
        for value in trace.tb_frame.f_locals.values():
            if isinstance(value, socket.socket):
                value.close()
        trace = trace.tb_next


def _no_delay(_client: mqtt.Client, _data: object, sock: Any) -> None:
    sock = getattr(sock, "_socket", sock)  # a websocket's own
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
