"""One connection to a broker, from CONNECT to its end: a paho client of its own."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from broker.client.paho_packets import PacketClient, mqtt
from broker.errors import plain
from broker.protocol.acl import REWRITE_RIGHTS
from broker.protocol.events import Connected, Incoming, LinkEvent, Outgoing
from broker.system.address import Address

CONNECT_TIMEOUT_S: Final = 10.0
MAX_OUTSTANDING_BYTES: Final = 64 * 1024 * 1024
MAX_OUTSTANDING: Final = 20_000
_MOST_NUMBERS: Final = 65_535  # of messages that are not acknowledged yet: MQTT's
REFUSED: Final = "the broker refused the connection"
IS_IT_REVOKED: Final = "is it revoked, ended, or of another CA?"
_WRONG_NAME: Final = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, …_IP_ADDRESS_MISMATCH
MAX_NAMED: Final = 4
_MUTE: Final = "; does that port want TLS? write mqtts:// then"
_NOT_TLS: Final = "; does that port speak TLS? if not, write mqtt://"


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How to reach the broker, and as whom; `client_id` is one of `Topics.client_id`.

    Of several addresses the first is tried first, and after each failure the one that follows.
    `tls` makes the context of one connection, so that a renewed certificate is used at the next.
    It raises OSError when it cannot. `mark` tells that certificate from the next: where another one
    comes while the link waits, it is tried at once. After a connection that failed it waits up to
    `backoff_cap_s`, after one that was ended up to `return_cap_s`: the broker is there, and had let
    it in. `if_twin` is what to say when another program seems to connect by the same name; else it
    is asked, with what helps a host. `name` is what `fleet enroll` calls whose certificate it is.
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


class Inbox(Protocol):
    """Where a link puts what has come, several events at a time; any thread may call it."""

    def __call__(self, *events: LinkEvent) -> None:
        """Take the events, in this order."""


def let_in(name: str) -> str:
    """Return how a name that the broker refuses is let in again, as it follows the link's words."""
    return f": {IS_IT_REVOKED} `fleet enroll {name} --replace` on the CA's machine lets it in again"


_CALLBACKS: Final = (
    "on_connect", "on_subscribe", "on_disconnect", "on_messages", "on_publish", "on_acknowledged",
)  # fmt: skip


class Connection:
    """One connection, one paho client, from CONNECT to its end."""

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
        self._asks: list[str] = []  # for the subscriptions to these, and has no answer yet
        self._inbox = inbox
        self._why = "connection lost"
        self._answered = False
        self._ready = threading.Event()
        self._closed = threading.Event()
        # A condition's own `with` can be left locked by a Ctrl-C; a lock's cannot.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._outstanding: dict[int, int] = {}
        self._number = 0  # of the last message
        self._outstanding_bytes = 0
        client = PacketClient(
            CallbackAPIVersion.VERSION2,
            client_id=settings.client_id,
            clean_session=True,
            protocol=mqtt.MQTTv311,
            reconnect_on_failure=False,
        )
        client.connect_timeout = CONNECT_TIMEOUT_S
        if address.user is not None:
            client.username_pw_set(address.user, address.password)
        if will is not None:
            last = will(session)
            client.will_set(last.topic, last.payload, last.qos, last.retain)
        client.on_socket_open = _no_delay
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        client.on_messages = self._on_messages
        client.on_publish = self._on_publish
        client.on_acknowledged = self._on_left
        self._client = client

    def open(self, stopping: threading.Event) -> str | None:
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
                return f"{address}: {plain(error)}{_NOT_TLS}"  # the connection itself was made
            return f"{address}: {_words(error, address.host, self._refused())}"
        self.reached = self._settings.tls is not None
        self._client.loop_start()
        waited_s = 0.0
        while not self._ready.wait(0.2):
            waited_s += 0.2
            if self._closed.is_set():
                if not self._answered:
                    # TLS 1.3 lets a client finish before the broker has judged its certificate.
                    self._why += _MUTE if self._settings.tls is None else self._refused()
                return f"{address}: {self._why}"
            if stopping.is_set() or waited_s > CONNECT_TIMEOUT_S:
                return f"{address}: no answer to the connection in {CONNECT_TIMEOUT_S:.0f} s"
        return None

    def wait_closed(self) -> str:
        """Wait for the end of the connection; return why it ended."""
        self._closed.wait()
        return f"{self._address}: {self._why}"

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
        # paho closes its pair of sockets when it is freed: not before its callbacks let go of us.
        for name in _CALLBACKS:
            setattr(self._client, name, None)

    def publish(self, messages: Sequence[Outgoing]) -> bool:
        """Send messages, in this order; tell whether there was room for all of them."""
        numbered: list[tuple[int, Outgoing]] = []
        try:
            with self._lock:
                for message in messages:
                    size_bytes = self._outstanding_bytes + len(message.payload)
                    is_full = len(self._outstanding) >= MAX_OUTSTANDING
                    if is_full or size_bytes > MAX_OUTSTANDING_BYTES or self._closed.is_set():
                        break
                    number = self._next_number()
                    numbered.append((number, message))
                    self._outstanding[number] = len(message.payload)
                    self._outstanding_bytes = size_bytes
            return self._client.send(numbered) and len(numbered) == len(messages)
        except BaseException:  # a Ctrl-C: `drain` is not to wait for what may never leave
            self._on_left([number for number, _ in numbered])
            raise

    def _next_number(self) -> int:
        while True:
            self._number = self._number % _MOST_NUMBERS + 1
            if self._number not in self._outstanding:
                return self._number

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
            self._why = f"{REFUSED}: {reason}"
            if self._settings.tls is not None:
                self._why += self._refused()
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
            self._deny(f"the broker refused the subscription to {_listed(refused)}")
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
        if self._why == "connection lost" and reason.is_failure:
            # What the library cannot say better is left out.
            more = "" if str(reason) == "Unspecified error" else f" ({reason})"
            self._why = f"connection lost{more}"
            if self._asks:
                # Some brokers answer so to who may not.
                self._deny(f"{self._why} at the subscription to {_listed(self._asks)}")
        self._closed.set()
        with self._lock:
            self._changed.notify_all()

    def _refused(self) -> str:
        if self._address.user is not None:
            return ""  # it goes by the password, and has no certificate
        return f"; the broker may not take this certificate{let_in(self._settings.name)}"

    def _deny(self, why: str) -> None:
        self.denied = True
        self._why = f"{why}; {REWRITE_RIGHTS}"

    def _on_messages(self, messages: list[Incoming]) -> None:
        self._inbox(*messages)

    def _on_publish(
        self, _client: mqtt.Client, _data: Any, mid: int, _reason: ReasonCode, _props: Any
    ) -> None:
        self._on_left([mid])

    def _on_left(self, numbers: list[int]) -> None:
        with self._lock:
            for number in numbers:
                self._outstanding_bytes -= self._outstanding.pop(number, 0)
            if not self._outstanding:
                self._changed.notify_all()


class _ClosingSocket(ssl.SSLSocket):
    """Closes itself when the handshake fails; paho forgets it open."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except BaseException:
            self.close()
            raise


def _listed(filters: Sequence[str]) -> str:
    more = len(filters) - MAX_NAMED
    return ", ".join(filters[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def _words(error: Exception, host: str, refused: str) -> str:
    """Return a failure to connect in words; OpenSSL's are for those who know its source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = f"the broker's certificate does not hold: {error.verify_message.rstrip('.')}"
        if error.verify_code not in _WRONG_NAME:
            return said
        return f"{said}; `fleet init --broker {host}` on the CA's machine adds that name to it"
    if isinstance(error, ssl.SSLError):
        said = (error.reason or str(error)).replace("_", " ").lower()
        # Whoever speaks TLS and does not like a certificate says so.
        is_tls = error.reason != "WRONG_VERSION_NUMBER" and not isinstance(error, ssl.SSLEOFError)
        return f"no TLS with this broker: {said}{refused if is_tls else _NOT_TLS}"
    return plain(error)


def _no_delay(_client: mqtt.Client, _data: Any, sock: Any) -> None:
    # Nagle's algorithm against delayed acknowledgements costs 43 ms a round trip on loopback.
    if isinstance(sock, socket.socket):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
