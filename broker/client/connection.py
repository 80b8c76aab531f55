"""One connection to a broker, from CONNECT with a will to its end; alone imports paho's client."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.reasoncodes import ReasonCode

from broker.client.connect_fault import NOT_TLS, connect_fault
from broker.errors import plain
from broker.figures import some
from broker.protocol.acl import REWRITE_RIGHTS
from broker.protocol.link_events import Connected, Disconnected, Incoming, LinkEvent, Outgoing
from broker.system.address import Address
from broker.system.import_blocks import without

with without("urllib.request"):  # paho uses it to look for a proxy
    import paho.mqtt.client as mqtt

CONNECT_TIMEOUT_S: Final = 10.0
MAX_OUTSTANDING_BYTES: Final = 64 * 1024 * 1024
MAX_OUTSTANDING: Final = 20_000
_LOST: Final = "connection lost"
_PUBACK: Final = 0x40
_READ_BYTES: Final = 64 * 1024
_UNSPECIFIED: Final = 0x80  # reason code of MQTT 5
_MAX_NAMED: Final = 4
_MUTE: Final = "does that port want TLS? write mqtts:// then"


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How to reach the broker, and as whom; `client_id` is one of `Topics.client_id`.

    Addresses are tried in turn. `tls` makes the context of one connection, so that a renewed
    certificate is used at the next; `mark` changes with the certificate, and a link that waits
    tries again at once then. The wait grows up to `backoff_cap_s` after a connection that failed,
    and up to `return_cap_s` after one that was ended. `if_twin` is the advice where another program
    seems to use the same client id; `name` is whose certificate it is.
    """

    addresses: Sequence[Address]
    client_id: str
    filters: Sequence[tuple[str, int]]
    keepalive_s: int = 20
    backoff_base_s: float = 0.5
    backoff_cap_s: float = 30.0
    return_cap_s: float = 4.0
    tls: Callable[[], ssl.SSLContext] | None = None
    mark: Callable[[], object] | None = None
    if_twin: str = ""
    name: str = "NAME"


Inbox = Callable[[LinkEvent], None]
"""Where a link puts its events, in order; any thread may call it."""


class _Client(mqtt.Client):
    """paho's client with fewer system calls; an exception that ends its thread ends it.

    Each call gives the interpreter up to another thread. paho makes five to read a packet; here all
    that has come is read at once. paho leaves each packet to its thread to send: waking that takes
    longer than sending. By TLS it stays so, since two threads may not use one such connection.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        self._sending = threading.Lock()
        self._received = memoryview(b"")
        super().__init__(*args, **named)

    def _sock_recv(self, bufsize: int) -> bytes:
        if not self._received:
            self._received = memoryview(super()._sock_recv(max(bufsize, _READ_BYTES)))
        part, self._received = self._received[:bufsize], self._received[bufsize:]
        return part  # type: ignore[return-value] # as good as bytes: paho copies it

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Take the packets that have come; `select` knows of those in the socket only."""
        result = super().loop_read(max_packets)
        while self._received and result == MQTTErrorCode.MQTT_ERR_SUCCESS:
            result = super().loop_read(max_packets)
        return result

    def _packet_queue(
        self,
        command: int,
        packet: bytes | bytearray,
        mid: int,
        qos: int,
        info: mqtt.MQTTMessageInfo | None = None,
    ) -> MQTTErrorCode:
        # Of bytes paho copies what is left, after each part that is sent.
        packet = memoryview(packet)  # type: ignore[assignment]
        # After a packet of another kind paho has more to do than to send it.
        alone = (qos or command == _PUBACK) and self._thread and type(self._sock) is socket.socket
        if not alone or self._sending.locked():
            return super()._packet_queue(command, packet, mid, qos, info)
        sent = 0
        # Not by `acquire`, which a Ctrl-C can leave locked. paho's thread finds out what is wrong.
        with self._sending, contextlib.suppress(OSError):
            if not self._out_packet:
                sent = self._sock_send(packet)
            if 0 < sent < len(packet):  # before what others have queued meanwhile
                self._out_packet.appendleft({
                    "command": command, "mid": mid, "qos": qos, "pos": sent,
                    "to_process": len(packet) - sent, "packet": packet, "info": info,
                })  # fmt: skip
                self._wake()
        if not sent:
            return super()._packet_queue(command, packet, mid, qos, info)
        with self._msgtime_mutex:
            self._last_msg_out = time.monotonic()
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _wake(self) -> None:
        if self._sockpairW is not None:
            with contextlib.suppress(BlockingIOError):  # it is awake
                self._sockpairW.send(b"0")

    def _packet_write(self) -> MQTTErrorCode:
        with self._sending:
            return super()._packet_write()

    def _thread_main(self) -> None:
        try:
            super()._thread_main()
        finally:
            if self._sock is not None:
                self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)


class Connection:
    """One connection with a client of its own: nothing is carried over to the next one."""

    def __init__(
        self,
        settings: LinkSettings,
        address: Address,
        most_qos: int,
        session: str,
        inbox: Inbox,
        will: Callable[[str], Outgoing] | None,
    ) -> None:
        self._settings = settings
        self._address = address
        self._most_qos = most_qos
        self._session = session
        self._filters = self._askable(settings.filters)
        self.asked = False  # to subscribe
        self.reached = False  # somebody who speaks TLS, or MQTT
        self.denied = False  # over a subscription
        self._asks: list[str] = []  # subscriptions without an answer yet
        self._inbox = inbox
        self._why = ""  # it ends, or was refused; empty: it was lost
        self._remedy = ""  # what to do about that
        self._answered = False
        self._ready = threading.Event()
        self._closed = threading.Event()
        # A condition's own `with` can be left locked by a Ctrl-C; a lock's cannot.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._outstanding: dict[int, int] = {}  # size by packet id
        self._early: set[int] = set()  # acknowledged before `publish` noted them
        self._outstanding_bytes = 0
        self._client = self._new_client(will)

    def _new_client(self, will: Callable[[str], Outgoing] | None) -> mqtt.Client:
        client = _Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._settings.client_id,
            clean_session=True,
            protocol=mqtt.MQTTv311,
            reconnect_on_failure=False,
        )
        client.connect_timeout = CONNECT_TIMEOUT_S
        client.max_inflight_messages_set(0)  # no limit: `publish` has one
        if self._address.user is not None:
            client.username_pw_set(self._address.user, self._address.password)
        if will is not None:
            last = will(self._session)
            client.will_set(last.topic, last.payload, last.qos, last.retain)
        client.on_socket_open = _no_delay
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        return client

    def open(self, stopping: threading.Event) -> Disconnected | None:
        """Connect and subscribe; return why it failed, or none."""
        address = self._address
        try:
            if self._settings.tls is not None:
                context = self._settings.tls()
                context.sslsocket_class = _ClosingSocket
                self._client.tls_set_context(context)
            self._client.connect(address.host, address.port, self._settings.keepalive_s)
        except (OSError, ValueError) as error:
            self.reached = isinstance(error, ssl.SSLError)
            if self._settings.tls is not None and isinstance(error, ConnectionResetError):
                return self._lost(plain(error), NOT_TLS)  # the TCP connection was made
            return self._lost(*connect_fault(error, address.host, self._let_in()))
        self.reached = self._settings.tls is not None
        self._client.loop_start()
        waited_s = 0.0
        while not self._ready.wait(0.2):
            waited_s += 0.2
            if self._closed.is_set():
                if not self._answered:
                    # TLS 1.3 lets a client finish before the broker has judged its certificate.
                    self._remedy = _MUTE if self._settings.tls is None else self._let_in()
                return self._lost(self._why, self._remedy)
            if stopping.is_set() or waited_s > CONNECT_TIMEOUT_S:
                return self._lost(f"no answer to the connection in {CONNECT_TIMEOUT_S:.0f} s")
        return None

    def wait_closed(self) -> Disconnected:
        """Wait for the end of the connection; return why it ended."""
        self._closed.wait()
        return self._lost(self._why, self._remedy)

    def _lost(self, why: str, remedy: str = "") -> Disconnected:
        return Disconnected(f"{self._address}: {why or _LOST}", self.reached, self.denied, remedy)

    def close(self) -> None:
        """Disconnect and end paho's thread."""
        sock = self._client.socket()
        self._client.disconnect()
        if isinstance(sock, socket.socket) and not self._closed.wait(1.0):
            # A broker that hangs would keep paho's thread until the keepalive gives up.
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._closed.set()
        self._client.loop_stop()
        # paho closes its pair of sockets when it is freed: its callbacks refer to us until then.
        for name in ("connect", "subscribe", "disconnect", "message", "publish"):
            setattr(self._client, f"on_{name}", None)

    def publish(self, messages: Sequence[Outgoing]) -> bool:
        """Send messages, in this order; tell whether there was room for all of them."""
        for message in messages:
            size_bytes = len(message.payload)
            with self._lock:
                is_full = len(self._outstanding) >= MAX_OUTSTANDING
                if is_full or self._outstanding_bytes + size_bytes > MAX_OUTSTANDING_BYTES:
                    return False
            if self._closed.is_set():
                return False
            # Not within the lock: paho holds one of its own when it calls `_on_publish`.
            sent = self._client.publish(message.topic, message.payload, message.qos, message.retain)
            with self._lock:
                if sent.mid in self._early:
                    self._early.remove(sent.mid)
                elif sent.rc == MQTTErrorCode.MQTT_ERR_SUCCESS:
                    self._outstanding[sent.mid] = size_bytes
                    self._outstanding_bytes += size_bytes
            if sent.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
                return False
        return True

    def subscribe(self, filters: Sequence[tuple[str, int]]) -> None:
        """Ask for more."""
        self._filters = self._askable(filters)
        self._subscribe()

    def _subscribe(self) -> None:
        self._asks = [filter_ for filter_, _ in self._filters]
        self._client.subscribe(self._filters)

    def drop(self, why: str) -> None:
        """End it; `why` is what `wait_closed` returns then."""
        self._why = why
        self._client.disconnect()

    def drain(self, timeout_s: float) -> bool:
        """Wait until all that was published has left; tell whether it has."""
        with self._lock:
            return self._changed.wait_for(
                lambda: not self._outstanding or self._closed.is_set(), timeout_s
            )

    def _on_connect(
        self, _client: mqtt.Client, _data: Any, _flags: Any, reason: ReasonCode, _props: Any
    ) -> None:
        self._answered = self.reached = True
        if reason.is_failure:
            self._why = f"the broker refused the connection: {reason}"
            if self._settings.tls is not None:
                self._remedy = self._let_in()
        elif self._filters:
            self.asked = True
            self._subscribe()
        else:
            self._ready.set()

    def _on_subscribe(
        self, client: mqtt.Client, _data: Any, _mid: int, reasons: list[ReasonCode], _props: Any
    ) -> None:
        self._asks = []
        refused = [
            filter_
            for (filter_, _), reason in zip(self._filters, reasons, strict=False)
            if reason.is_failure
        ]
        if refused:
            self._deny(f"the broker refused the subscription to {some(refused, _MAX_NAMED)}")
            client.disconnect()
        elif self._ready.is_set():
            self._inbox(Connected(self._session))  # who waits in `open` tells of the first
        else:
            self._ready.set()

    def _askable(self, filters: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        return [(name, min(qos, self._most_qos)) for name, qos in filters]

    def _on_disconnect(
        self, _client: mqtt.Client, _data: Any, _flags: Any, reason: ReasonCode, _props: Any
    ) -> None:
        if not self._why and reason.is_failure:
            more = "" if reason.value == _UNSPECIFIED else f" ({reason})"
            self._why = f"{_LOST}{more}"
            if self._asks:  # some brokers end the connection of who may not subscribe
                self._deny(f"{self._why} at the subscription to {some(self._asks, _MAX_NAMED)}")
        self._closed.set()
        with self._lock:
            self._changed.notify_all()

    def _let_in(self) -> str:
        """Return what to do where the broker may not take the certificate."""
        if self._address.user is not None:
            return ""  # it goes by the password, and has no certificate
        return (
            "the broker may not take this certificate: is it revoked, ended, or of another CA? "
            f"`fleet enroll {self._settings.name} --replace` on the CA's machine lets it in again"
        )

    def _deny(self, why: str) -> None:
        self.denied = True
        self._why, self._remedy = why, REWRITE_RIGHTS

    def _on_message(self, _client: mqtt.Client, _data: Any, message: mqtt.MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = ""  # the service counts it as garbage
        self._inbox(Incoming(topic, bytes(message.payload), message.retain))

    def _on_publish(
        self, _client: mqtt.Client, _data: Any, mid: int, _reason: ReasonCode, _props: Any
    ) -> None:
        with self._lock:
            if mid in self._outstanding:
                self._outstanding_bytes -= self._outstanding.pop(mid)
            else:
                self._early.add(mid)
            if not self._outstanding:
                self._changed.notify_all()


class _ClosingSocket(ssl.SSLSocket):
    """Closes itself when the handshake fails; paho leaves it open."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except BaseException:
            self.close()
            raise


def _no_delay(_client: mqtt.Client, _data: Any, sock: Any) -> None:
    # Nagle's algorithm against delayed acknowledgements costs 43 ms a round trip on loopback.
    if isinstance(sock, socket.socket):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
