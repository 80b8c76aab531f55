"""Brokers and clients for tests: the embedded broker and, where installed, mosquitto."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

DEADLINE_S = 20.0


@dataclass
class BrokerProcess:
    """A broker as a process; it can be killed and started again on the same port.

    One that `announces` says where it listens, and may be given port 0; another is asked.
    """

    start_command: Callable[[int], list[str]]
    announces: bool
    host: str = "127.0.0.1"
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address as people write it."""
        return f"mqtt://{self.host}:{self.port}"

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        if not self.announces:
            self.port = self.port or _free_port()
        self.process = subprocess.Popen(
            self.start_command(self.port),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if self.announces else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if self.announces:
            self._read_ready_line(self.process)
        else:
            self._ask_until_it_answers(self.process)

    def end(self, how: int = signal.SIGTERM) -> int:
        """End it and return its exit code."""
        assert self.process is not None
        self.process.send_signal(how)
        try:
            return self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()
            if self.process.stdout is not None:
                self.process.stdout.close()

    def _read_ready_line(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        watchdog = threading.Timer(DEADLINE_S, process.kill)
        watchdog.start()
        line = process.stdout.readline()
        watchdog.cancel()
        assert line, f"the broker ended with {process.wait(DEADLINE_S)}, or said nothing"
        ready = json.loads(line)
        assert ready["event"] == "listening"
        assert self.port in {0, ready["port"]}
        self.host, self.port = ready["host"], ready["port"]

    def _ask_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                socket.create_connection((self.host, self.port), 1.0).close()
            except OSError:
                assert process.poll() is None, "the broker ended by itself"
                assert time.monotonic() < deadline_s, "the broker takes no connection"
                time.sleep(0.02)
            else:
                return


class Client:
    """A plain paho client, not a `Link`, that collects what it is sent."""

    def __init__(self, port: int, name: str, will: tuple[str, bytes] | None = None) -> None:
        self.got: queue.Queue[mqtt.MQTTMessage] = queue.Queue()
        self.gone = threading.Event()
        self._ready = threading.Event()
        self.paho = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id=name, reconnect_on_failure=False
        )
        self.paho.on_socket_open = _no_delay
        if will is not None:
            self.paho.will_set(will[0], will[1], 1)
        self.paho.on_connect = lambda *_: self._ready.set()
        self.paho.on_subscribe = lambda *_: self._ready.set()
        self.paho.on_unsubscribe = lambda *_: self._ready.set()
        self.paho.on_disconnect = lambda *_: self.gone.set()
        self.paho.on_message = lambda _client, _data, message: self.got.put(message)
        self.paho.connect("127.0.0.1", port)
        self.paho.loop_start()
        assert self._ready.wait(DEADLINE_S), f"{name}: no CONNACK"

    def subscribe(self, name: str, qos: int = 1) -> None:
        """Subscribe, and wait for the answer."""
        self._ready.clear()
        self.paho.subscribe(name, qos)
        assert self._ready.wait(DEADLINE_S), f"{name}: no SUBACK"

    def unsubscribe(self, name: str) -> None:
        """Unsubscribe, and wait for the answer."""
        self._ready.clear()
        self.paho.unsubscribe(name)
        assert self._ready.wait(DEADLINE_S), f"{name}: no UNSUBACK"

    def publish(self, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False) -> None:
        """Publish, and wait until it is sent; at QoS 1, until it is acknowledged."""
        info = self.paho.publish(topic, payload, qos, retain)
        info.wait_for_publish(DEADLINE_S)
        assert info.is_published(), f"{topic}: no PUBACK"

    def next(self) -> tuple[str, bytes]:
        """The next message's topic and payload."""
        message = self.got.get(timeout=DEADLINE_S)
        return message.topic, bytes(message.payload)

    def break_off(self) -> None:
        """End the connection without a word, as a power cut would."""
        sock = self.paho.socket()
        assert isinstance(sock, socket.socket)
        sock.shutdown(socket.SHUT_RDWR)
        assert self.gone.wait(DEADLINE_S)

    def stop(self) -> None:
        """Disconnect properly."""
        self.paho.disconnect()
        self.paho.loop_stop()


def _no_delay(_client: mqtt.Client, _data: object, sock: object) -> None:
    assert isinstance(sock, socket.socket)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _embedded() -> BrokerProcess:
    return BrokerProcess(
        lambda port: [sys.executable, "-m", "broker.server", "--listen", f"127.0.0.1:{port}"],
        announces=True,
    )


def _mosquitto(folder: Path) -> BrokerProcess:
    program = shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if program is None:
        pytest.skip("mosquitto is not installed")

    def command(port: int) -> list[str]:
        config = folder / f"mosquitto-{port}.conf"
        config.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n"
            "max_packet_size 1200000\nmax_queued_messages 100000\n"
        )
        return [program, "-c", str(config)]

    return BrokerProcess(command, announces=False)


@pytest.fixture
def new_broker(
    tmp_path: Path,
) -> Iterator[Callable[[str], BrokerProcess]]:
    """`new_broker("embedded" or "mosquitto")`: a broker of the test's own."""
    made: list[BrokerProcess] = []

    def start(kind: str) -> BrokerProcess:
        broker = _embedded() if kind == "embedded" else _mosquitto(tmp_path)
        made.append(broker)
        broker.start()
        return broker

    yield start
    for broker in made:
        if broker.process is not None:
            broker.end(signal.SIGKILL)


@pytest.fixture(scope="session")
def embedded_broker() -> Iterator[BrokerProcess]:
    """The embedded broker, shared by all tests."""
    broker = _embedded()
    broker.start()
    yield broker
    broker.end()


@pytest.fixture(scope="session")
def mosquitto_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A mosquitto, shared by all tests; they are skipped where it is not installed."""
    broker = _mosquitto(tmp_path_factory.mktemp("mosquitto"))
    broker.start()
    yield broker
    broker.end()


@pytest.fixture(params=["embedded", "mosquitto"])
def any_broker(request: pytest.FixtureRequest) -> BrokerProcess:
    """Each of the brokers in turn."""
    broker: BrokerProcess = request.getfixturevalue(f"{request.param}_broker")
    return broker


@pytest.fixture
def client() -> Iterator[Callable[..., Client]]:
    """`client(port, name, will=(topic, payload))`: connected; stopped at the test's end."""
    made: list[Client] = []

    def connect(port: int, name: str, will: tuple[str, bytes] | None = None) -> Client:
        made.append(Client(port, name, will))
        return made[-1]

    yield connect
    for one in made:
        one.stop()


@pytest.fixture
def topic_root() -> str:
    """A topic root of the test's own, since brokers are shared."""
    return f"t{uuid.uuid4().hex[:12]}"
