"""Brokers that know their clients by certificate, run with the files that the fleet renders."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from broker.deploy import Ports, Site
from broker.pki import identity as ids
from broker.protocol.acl import Principal
from broker.protocol.topic_table import Role
from tests.harness.secure import House

DEADLINE_S = 60.0
RABBITMQ_START_S = 300.0  # three at once, on a machine that has other things to do
COME_BACK_S = 5.0
WITNESS = "observer:witness"  # reads everything of the fleet, and is sent it by everybody
PEOPLE = ("operator:alice", "operator:bob", "observer:carol", "observer:dave", WITNESS)
HOSTS = ("one", "two")


@dataclass
class Secured:
    """A broker that serves over TLS: where, and who signs for its clients' names.

    A test that is given one needs no more of it than `connect` and `restart`.
    """

    kind: str
    house: House
    ports: Ports
    start_process: Callable[[], subprocess.Popen[bytes]]
    start_deadline_s: float = DEADLINE_S
    process: subprocess.Popen[bytes] | None = None
    log: Path | None = None
    site: Site | None = None  # what its files were rendered from
    environment: dict[str, str] = field(default_factory=dict)  # of RabbitMQ's programs
    epmd_port: str = ""  # of Erlang's port mapper, where it is this broker's alone

    def start(self) -> None:
        """Start it and wait until it serves."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        self.process = self.start_process()

    def wait_ready(self) -> None:
        """Wait until it lets a client in."""
        assert self.process is not None
        deadline_s = time.monotonic() + self.start_deadline_s
        while True:
            probe = Actor("coordinator", self, port=self.ports.hosts)
            if probe.try_connect():
                probe.stop()
                return
            assert self.process.poll() is None, f"the broker ended by itself: {self.words()}"
            assert time.monotonic() < deadline_s, f"no connection: {probe.why}: {self.words()}"
            time.sleep(0.05)

    def end(self, how: int = signal.SIGTERM) -> None:
        """End it, with all that it started."""
        if self.process is None:
            return
        os.killpg(self.process.pid, how)
        try:
            self.process.wait(DEADLINE_S)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(DEADLINE_S)
            self.process = None
        if self.epmd_port:
            end_epmd(self.epmd_port)

    def reload(self) -> None:
        """Have it read its files again; it does so a little later."""
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    def words(self) -> str:
        """Return the end of what it logged."""
        return self.log.read_text("utf-8", "replace")[-2000:] if self.log else ""

    def connect(self, name: str, **options: Any) -> Actor:
        """Return a client with the certificate of `name`, connected."""
        actor = Actor(name, self, **options)
        actor.come_back()
        return actor


def end_epmd(port: str) -> None:
    """End Erlang's port mapper, which outlives the nodes that started it."""
    subprocess.run(
        ["/usr/bin/epmd", "-port", port, "-kill"],
        capture_output=True, check=False, timeout=DEADLINE_S,
    )  # fmt: skip


@dataclass
class Actor:
    """A plain paho client, not a `Link`, with a certificate of its own.

    It takes being thrown out for an answer, comes back, and subscribes to what it had.
    """

    name: str
    broker: Secured
    client_id: str = ""
    will: tuple[str, bytes] | None = None
    port: int = 0
    house: House | None = None  # whose certificate it has, unless one of the broker's own CA
    anonymous: bool = False  # TLS without a certificate
    plain: bool = False  # no TLS
    websocket: bool = False
    page: str = ""  # the origin of the page that a browser would name
    got: queue.Queue[tuple[str, bytes]] = field(default_factory=queue.Queue)
    held: list[tuple[str, int]] = field(default_factory=list)
    why: str = ""

    def __post_init__(self) -> None:
        self.client_id = self.client_id or f"fleet-{self.name.replace(':', '-')}"
        person = Principal.parse(self.name).role not in {Role.AGENT, Role.COORDINATOR}
        ports = self.broker.ports
        usual = ports.people if person else ports.hosts
        self.port = self.port or (ports.websocket if self.websocket else usual) or 0

    def try_connect(self) -> bool:
        """Connect; tell whether the broker took it, and keep in `why` what it said."""
        self.answered, self.gone = threading.Event(), threading.Event()
        self.answer: int | None = None
        client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=self.client_id,
            reconnect_on_failure=False,
            transport="websockets" if self.websocket else "tcp",
        )
        if self.websocket:
            path = "/ws" if self.broker.kind == "rabbitmq" else "/mqtt"
            client.ws_set_options(path, {"Origin": self.page} if self.page else None)
        self._secure(client)
        client.on_socket_open = _no_delay
        if self.will is not None:
            client.will_set(self.will[0], self.will[1], 1)
        client.on_connect = lambda _c, _d, _f, reason, _p: self._answered(reason.value, str(reason))
        client.on_subscribe = lambda _c, _d, _m, reasons, _p: self._answered(
            max(one.value for one in reasons), str(reasons)
        )
        client.on_publish = lambda _c, _d, _m, reason, _p: self._answered(reason.value, str(reason))
        client.on_disconnect = lambda *_: self._closed()
        client.on_message = lambda _c, _d, message: self.got.put((message.topic, message.payload))
        self.paho = client
        try:
            client.connect("127.0.0.1", self.port, keepalive=30)
        except OSError as error:
            self.why = str(error)
            _close_what_is_left(error)
            return False
        client.loop_start()
        if self._wait() == 0:
            for filter_, qos in self.held:
                assert self._ask(lambda f=filter_, q=qos: client.subscribe(f, q)) is not None
            return True
        self.stop()
        return False

    def come_back(self) -> None:
        """Connect; try again for a while.

        RabbitMQ drops who comes back before it has put away what it kept for the last connection.
        """
        deadline_s = time.monotonic() + COME_BACK_S
        while not self.try_connect():
            words = f"{self.name}: {self.why}: {self.broker.words()}"
            assert time.monotonic() < deadline_s, words
            time.sleep(0.05)

    def _secure(self, client: mqtt.Client) -> None:
        ca = str(self.broker.house.broker / ids.CA_FILE)
        if self.anonymous:
            client.tls_set(ca)
        elif not self.plain:
            shown = (self.house or self.broker.house).known(self.name)
            client.tls_set(ca, str(shown / ids.CERTIFICATE_FILE), str(shown / ids.KEY_FILE))

    def subscribe(self, filter_: str, qos: int = 0) -> bool:
        """Subscribe; tell whether the broker said that it took it, which proves nothing."""
        answer = self.answer_to(filter_, qos)
        granted = answer is not None and answer < 0x80
        if granted:
            self.held.append((filter_, qos))
        return granted

    def answer_to(self, filter_: str, qos: int = 0) -> int | None:
        """Return the code of the answer to a subscription, or none when thrown out for it."""
        return self._ask(lambda: self.paho.subscribe(filter_, qos))

    def publish(self, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False) -> bool:
        """Publish; tell whether it was acknowledged, which proves nothing either."""
        return self._ask(lambda: self.paho.publish(topic, payload, qos, retain)) is not None

    def heard_until(self, end: tuple[str, bytes]) -> list[tuple[str, bytes]]:
        """Return what has come before the message `end`."""
        heard = []
        while (message := self.got.get(timeout=DEADLINE_S)) != end:
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

    def _ask(self, what: Callable[[], object]) -> int | None:
        self.answered.clear()
        self.answer = None
        what()
        answer = self._wait()
        if answer is None:
            self.paho.loop_stop()
            self.come_back()
        return answer

    def _wait(self) -> int | None:
        assert self.answered.wait(DEADLINE_S), f"{self.name}: no answer: {self.broker.words()}"
        return self.answer

    def _answered(self, answer: int, words: str) -> None:
        self.answer, self.why = answer, words
        self.answered.set()

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
