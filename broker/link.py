"""The client link to a broker; the only importer of paho.

Each connection is a fresh paho client with a session id of its own, which its will bears, so that a
late will of an old session cannot kill a newer one. Nothing is carried over from one connection to
the next: what was not delivered is stated again by the birth, which the service publishes on
`Connected`. Reconnecting backs off exponentially with jitter.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Final, Protocol

from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from broker.address import Address
from broker.clock import Randomness, backoff_s
from broker.errors import plain
from broker.mailbox import Lane, Letter, Mailbox
from broker.messages import MAX_CHUNK_BYTES
from broker.packets import PacketClient, mqtt
from broker.wire import Connected, Disconnected, Incoming, LinkEvent, Outgoing

__all__ = [
    "Connected",
    "Disconnected",
    "Inbox",
    "Incoming",
    "Link",
    "LinkEvent",
    "LinkSettings",
    "Outgoing",
    "feed",
    "lane_of",
]

CONNECT_TIMEOUT_S: Final = 10.0
GOODBYE_TIMEOUT_S: Final = 3.0
MOST_QOS: Final = 1  # that any broker has
STEADY_S: Final = 10.0  # a connection that lasted so long was a good one
MAX_OUTSTANDING_BYTES: Final = 64 * 1024 * 1024
MAX_OUTSTANDING: Final = 20_000
_MOST_NUMBERS: Final = 65_535  # of messages that are not acknowledged yet: MQTT's
# As we encode them. Nobody waits for what comes of these, and another report follows soon.
_PATIENT: Final = (b'{"v":1,"type":"accepted",', b'{"v":1,"type":"started",')
_REFUSED: Final = (
    "; the broker may not take this certificate: is it revoked, ended, or of another CA? "
    "`fleet enroll NAME --replace` gives a new one"
)
_WRONG_NAME: Final = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, …_IP_ADDRESS_MISMATCH
SHORT_LIVED: Final = 3
_MUTE: Final = "; does that port want TLS? write mqtts:// then"


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How to reach the broker, and as whom; `client_id` is one of `Topics.client_id`.

    Of several addresses the first is tried first, and after each failure the one that follows.
    `tls` makes the context of one connection, so that a renewed certificate is used at the next.
    It raises OSError when it cannot. `if_twin` is what to say when another program seems to connect
    by the same name; else it is asked, with what helps a host.
    """

    addresses: Sequence[Address]
    client_id: str
    filters: Sequence[tuple[str, int]]
    keepalive_s: int = 20
    backoff_base_s: float = 0.5
    backoff_cap_s: float = 30.0
    tls: Callable[[], ssl.SSLContext] | None = None
    if_twin: str = ""


class Inbox(Protocol):
    """Where a link puts what has come, several events at a time; any thread may call it."""

    def __call__(self, *events: LinkEvent) -> None:
        """Take the events, in this order."""


class Link:
    """Keeps a connection to the broker and feeds what arrives into a mailbox.

    `will(session)` gives the last will of a session; `new_id()` a fresh session id.
    """

    def __init__(
        self,
        settings: LinkSettings,
        inbox: Inbox,
        *,
        will: Callable[[str], Outgoing] | None,
        new_id: Callable[[], str],
        rng: Randomness,
    ) -> None:
        """Prepare; `start` connects."""
        self._settings = settings
        self._inbox = inbox
        self._will = will
        self._new_id = new_id
        self._rng = rng
        self._stopping = threading.Event()
        self._connection: _Connection | None = None
        self._thread = threading.Thread(target=self._run, name="fleet-link", daemon=True)

    def start(self) -> None:
        """Start connecting; `Connected` or `Disconnected` tells how it went."""
        self._thread.start()

    def publish(self, *messages: Outgoing) -> bool:
        """Hand messages to the connection, in this order, to leave together.

        Returns false when there is none or its queue is full; some of them may have left then.
        """
        connection = self._connection
        return connection is not None and connection.publish(messages)

    def subscribe(self, filters: Sequence[tuple[str, int]]) -> None:
        """Ask for more on the present connection; its next `Connected` tells that it is granted."""
        connection = self._connection
        if connection is not None:
            connection.subscribe(filters)

    def drop(self, why: str) -> None:
        """End the present connection, for the next one to be made."""
        connection = self._connection
        if connection is not None:
            connection.drop(why)

    def stop(self, goodbye: Sequence[Outgoing] = ()) -> None:
        """Publish `goodbye`, wait a little for it to leave, disconnect and end the thread."""
        connection = self._connection
        if connection is not None:
            connection.publish(goodbye)
            connection.drain(GOODBYE_TIMEOUT_S)
        self._stopping.set()
        if connection is not None:
            connection.close()
        if self._thread.is_alive():
            self._thread.join(CONNECT_TIMEOUT_S + 5)

    def _run(self) -> None:
        failures = short_lived = 0
        most_qos = MOST_QOS
        addresses = cycle(self._settings.addresses)
        while not self._stopping.is_set():
            session = self._new_id()
            address = next(addresses)
            connection = _Connection(
                self._settings, address, most_qos, session, self._inbox, self._will
            )
            why = connection.open(self._stopping)
            # Without one of its nodes a cluster may not take it at QoS 1 (NATS), and nothing rests
            # on that: rather at QoS 0 than not at all.
            most_qos = 0 if connection.asked else most_qos
            if why is None:
                most_qos = MOST_QOS
                begun_s = time.monotonic()
                self._connection = connection
                self._inbox(Connected(session))
                why = connection.wait_closed()
                short_lived += 1
                if time.monotonic() - begun_s > STEADY_S:
                    failures = short_lived = 0  # two of one name throw each other off at once
                if short_lived >= SHORT_LIVED:
                    why += self._twin()
            self._connection = None
            connection.close()
            if self._stopping.is_set():
                break
            self._inbox(Disconnected(why, connection.reached))
            self._stopping.wait(
                backoff_s(
                    failures // len(self._settings.addresses),  # each is tried before longer waits
                    self._settings.backoff_base_s,
                    self._settings.backoff_cap_s,
                    self._rng,
                )
            )
            failures += 1

    def _twin(self) -> str:
        """Say what it may be when the broker ends one connection after the other."""
        name = self._settings.client_id.rpartition("/")[2]
        if self._settings.if_twin:
            return f"; {self._settings.if_twin}"
        remedy = "give one of them another --host"
        if self._settings.tls is not None:
            remedy = "each needs a certificate of its own, `fleet enroll` another name"
        return f"; does another program connect as {name!r}, too? {remedy}"


_CALLBACKS: Final = (
    "on_connect", "on_subscribe", "on_disconnect", "on_messages", "on_publish", "on_acknowledged",
)  # fmt: skip


class _Connection:
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
        self._inbox = inbox
        self._why = "connection lost"
        self._answered = False
        self._ready = threading.Event()
        self._closed = threading.Event()
        self._changed = threading.Condition()
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
            return f"{address}: {_words(error, address.host)}"
        self.reached = self._settings.tls is not None
        self._client.loop_start()
        waited_s = 0.0
        while not self._ready.wait(0.2):
            waited_s += 0.2
            if self._closed.is_set():
                if not self._answered:
                    # TLS 1.3 lets a client finish before the broker has judged its certificate.
                    self._why += _MUTE if self._settings.tls is None else _REFUSED
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
        numbered = []
        with self._changed:
            for message in messages:
                size_bytes = self._outstanding_bytes + len(message.payload)
                is_full = len(self._outstanding) >= MAX_OUTSTANDING
                if is_full or size_bytes > MAX_OUTSTANDING_BYTES or self._closed.is_set():
                    break
                number = self._next_number()
                self._outstanding[number] = len(message.payload)
                self._outstanding_bytes = size_bytes
                numbered.append((number, message))
        return self._client.send(numbered) and len(numbered) == len(messages)

    def _next_number(self) -> int:
        while True:
            self._number = self._number % _MOST_NUMBERS + 1
            if self._number not in self._outstanding:
                return self._number

    def subscribe(self, filters: Sequence[tuple[str, int]]) -> None:
        self._filters = self._askable(filters)
        self._client.subscribe(self._filters)

    def drop(self, why: str) -> None:
        self._why = why
        self._client.disconnect()

    def drain(self, timeout_s: float) -> bool:
        """Wait until all that was published has left; tell whether it has."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._outstanding or self._closed.is_set(), timeout_s
            )

    def _on_connect(
        self, client: mqtt.Client, _data: Any, _flags: Any, reason: ReasonCode, _props: Any
    ) -> None:
        self._answered = self.reached = True
        if reason.is_failure:
            self._why = f"the broker refused the connection: {reason}"
            if self._settings.tls is not None:
                self._why += _REFUSED
        elif self._filters:
            self.asked = True
            client.subscribe(self._filters)
        else:
            self._ready.set()

    def _on_subscribe(
        self, client: mqtt.Client, _data: Any, _mid: int, reasons: list[ReasonCode], _props: Any
    ) -> None:
        refused = [
            filter_
            for (filter_, _), reason in zip(self._filters, reasons, strict=False)
            if reason.is_failure
        ]
        if refused:
            self._why = f"the broker refused the subscription to {', '.join(refused)}"
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
        self._closed.set()
        with self._changed:
            self._changed.notify_all()

    def _on_messages(self, messages: list[Incoming]) -> None:
        self._inbox(*messages)

    def _on_publish(
        self, _client: mqtt.Client, _data: Any, mid: int, _reason: ReasonCode, _props: Any
    ) -> None:
        self._on_left([mid])

    def _on_left(self, numbers: list[int]) -> None:
        with self._changed:
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


def lane_of(event: LinkEvent) -> tuple[Lane, str | None]:
    """Return the mailbox lane of a link event, and the key by which it replaces older ones."""
    if not isinstance(event, Incoming):
        return Lane.LOCAL, None
    topic = event.topic
    leaf = topic.rsplit("/", 1)[-1]
    if leaf in {"heartbeat", "capability", "progress"}:
        return Lane.LATEST, topic
    if leaf == "response" and event.payload.startswith(_PATIENT):
        return Lane.PATIENT, None
    if leaf == "log" or "/chunk/" in topic:
        return Lane.BULK, None
    if leaf == "request" and "/operator/" in topic:
        # Whoever waits asks again and again; a signed command is another each time.
        return Lane.CONTROL, f"{topic} {hash(event.payload)}"
    return Lane.CONTROL, None


def feed(mailbox: Mailbox[Any]) -> Inbox:
    """Return a function that puts link events into `mailbox`, each in its lane."""

    def put(*events: LinkEvent) -> None:
        mailbox.put_all([_letter(event) for event in events])

    return put


def _letter(event: LinkEvent) -> Letter[LinkEvent]:
    if not isinstance(event, Incoming):
        return event, *lane_of(event), 0
    if len(event.payload) > MAX_CHUNK_BYTES:
        event = Incoming(event.topic, event.payload[:0], event.retained)
    return event, *lane_of(event), len(event.payload)


def _words(error: Exception, host: str) -> str:
    """Return a failure to connect in words; OpenSSL's are for those who know its source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = f"the broker's certificate does not hold: {error.verify_message.rstrip('.')}"
        if error.verify_code not in _WRONG_NAME:
            return said
        return f"{said}; `fleet init --broker {host}` on the CA's machine adds that name to it"
    if isinstance(error, ssl.SSLError):
        said = (error.reason or str(error)).replace("_", " ").lower()
        return f"no TLS with this broker: {said}{_REFUSED}"
    return plain(error)


def _no_delay(_client: mqtt.Client, _data: Any, sock: Any) -> None:
    # Nagle's algorithm against delayed acknowledgements costs 43 ms a round trip on loopback.
    if isinstance(sock, socket.socket):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
