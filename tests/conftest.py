"""Brokers and clients for tests: the embedded broker and, where installed, mosquitto."""

from __future__ import annotations

import logging
import queue
import signal
import socket
import ssl
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as mqtt
import pytest
from hypothesis import HealthCheck, settings
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from tests.harness.brokers import BrokerProcess, embedded, mosquitto

DEADLINE_S = 60.0
# The longest test takes six minutes; one that waits for ever must not take the rest with it.
TEST_DEADLINE_S: Final = 1200
TESTS: Final = Path(__file__).parent

# How fast a machine is on a busy day is no property of the code.
settings.register_profile("fleet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fleet")

# A script starts what it puts in the background with SIGINT ignored, and programs inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Every test in these folders starts programs, a browser or a broker of somebody else.
SYSTEM: Final = {"attacks", "chaos", "conformance", "install", "system"}
_STARTS: Final = {"os.fork", "os.forkpty", "os.posix_spawn", "subprocess.Popen"}
_started: list[str] = []


def _note_start(event: str, _: object) -> None:
    if event in _STARTS:
        _started.append(event)


sys.addaudithook(_note_start)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of `SYSTEM`; `make test` leaves them out but for those marked `smoke`."""
    for item in items:
        if item.path.relative_to(TESTS).parts[0] in SYSTEM:
            item.add_marker("system")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test that starts a process and is not marked `system`."""
    _started.clear()
    yield
    if _started and not {"slow", "smoke", "system"} & {mark.name for mark in item.iter_markers()}:
        pytest.fail(f"it started a process ({_started[0]}): mark it `system`")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Fail a test that has not ended after `TEST_DEADLINE_S`, with the place where it waits."""

    def expire(_signal: int, _frame: object) -> None:
        pytest.fail(f"{item.nodeid}: not ended after {TEST_DEADLINE_S} s")

    signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, TEST_DEADLINE_S, DEADLINE_S)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class Client:
    """A plain paho client, not a `Link`, that collects what it is sent."""

    def __init__(
        self,
        port: int,
        name: str,
        will: tuple[str, bytes] | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        keepalive_s: int = 60,
    ) -> None:
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
        self.codes: list[int] = []
        self.paho.on_subscribe = self._on_subscribe
        self.paho.on_unsubscribe = lambda *_: self._ready.set()
        self.paho.on_disconnect = lambda *_: self.gone.set()
        self.paho.on_message = lambda _client, _data, message: self.got.put(message)
        if tls is not None:
            self.paho.tls_set_context(tls)
        self.paho.connect("127.0.0.1", port, keepalive_s)
        self.paho.loop_start()
        assert self._ready.wait(DEADLINE_S), f"{name}: no CONNACK"

    def subscribe(self, name: str, qos: int = 1) -> int:
        self._ready.clear()
        self.paho.subscribe(name, qos)
        assert self._ready.wait(DEADLINE_S), f"{name}: no SUBACK"
        return self.codes[-1]

    def _on_subscribe(
        self, _client: object, _data: object, _mid: int, reasons: list[ReasonCode], _props: object
    ) -> None:
        self.codes += [reason.value for reason in reasons]
        self._ready.set()

    def unsubscribe(self, name: str) -> None:
        self._ready.clear()
        self.paho.unsubscribe(name)
        assert self._ready.wait(DEADLINE_S), f"{name}: no UNSUBACK"

    def publish(self, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False) -> None:
        """Publish, and wait until it is sent; at QoS 1, until it is acknowledged."""
        info = self.paho.publish(topic, payload, qos, retain)
        info.wait_for_publish(DEADLINE_S)
        assert info.is_published(), f"{topic}: no PUBACK"

    def next(self) -> tuple[str, bytes]:
        message = self.got.get(timeout=DEADLINE_S)
        return message.topic, bytes(message.payload)

    def break_off(self) -> None:
        """End the connection without a word, as a power cut would."""
        sock = self.paho.socket()
        assert isinstance(sock, socket.socket)
        sock.shutdown(socket.SHUT_RDWR)
        assert self.gone.wait(DEADLINE_S)

    def stop(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


def _no_delay(_client: mqtt.Client, _data: object, sock: object) -> None:
    assert isinstance(sock, socket.socket)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@pytest.fixture(autouse=True)
def _log_level() -> Iterator[None]:
    """Restore the root logger's level, which a program that runs in this process sets."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)


@pytest.fixture
def new_broker(
    tmp_path: Path,
) -> Iterator[Callable[[str], BrokerProcess]]:
    """`new_broker("embedded" or "mosquitto")`: a broker of the test's own."""
    made: list[BrokerProcess] = []

    def start(kind: str) -> BrokerProcess:
        broker = embedded() if kind == "embedded" else mosquitto(tmp_path)
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
    broker = embedded()
    broker.start()
    yield broker
    broker.end()


@pytest.fixture(scope="session")
def mosquitto_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A mosquitto, shared by all tests; they are skipped where it is not installed."""
    broker = mosquitto(tmp_path_factory.mktemp("mosquitto"))
    broker.start()
    yield broker
    broker.end()


@pytest.fixture(params=["embedded", "mosquitto"])
def any_broker(request: pytest.FixtureRequest) -> BrokerProcess:
    broker: BrokerProcess = request.getfixturevalue(f"{request.param}_broker")
    return broker


@pytest.fixture
def client() -> Iterator[Callable[..., Client]]:
    """`client(port, name, will=(topic, payload))`: connected; stopped at the test's end."""
    made: list[Client] = []

    def connect(
        port: int, name: str, will: tuple[str, bytes] | None = None, **options: Any
    ) -> Client:
        made.append(Client(port, name, will, **options))
        return made[-1]

    yield connect
    for one in made:
        one.stop()


@pytest.fixture
def topic_root() -> str:
    """A topic root of the test's own, since brokers are shared."""
    return f"t{uuid.uuid4().hex[:12]}"
