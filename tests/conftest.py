"""Brokers and clients for tests: the embedded broker and, where installed, mosquitto."""

from __future__ import annotations

import logging
import os
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from tests.harness.brokers import BrokerProcess, embedded, mosquitto
from tests.harness.client import DEADLINE_S, Client

# The longest test takes six minutes; one that waits for ever must not take the rest with it.
TEST_DEADLINE_S: Final = 1200
TESTS: Final = Path(__file__).parent

# How fast a machine is on a busy day is no property of the code.
settings.register_profile("fleet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fleet")

# Workers of xdist have a width of their own, by which the fleet would break its lines.
os.environ.pop("COLUMNS", None)

# A script starts what it puts in the background with SIGINT ignored, and programs inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Every test in these folders starts programs, a browser or a broker of somebody else.
SYSTEM: Final = {"attacks", "chaos", "conformance", "install", "system"}
_STARTS: Final = {"os.fork", "os.forkpty", "os.posix_spawn", "subprocess.Popen"}
_started: list[str] = []


def _note_start(event: str, _: object) -> None:
    if event in _STARTS and os.name == "posix":  # elsewhere nothing is forked
        _started.append(event)


sys.addaudithook(_note_start)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of `SYSTEM`; `make test` leaves them out but for those marked `smoke`."""
    for item in items:
        if os.name != "posix" and item.get_closest_marker("posix"):
            item.add_marker(pytest.mark.skip(reason="needs POSIX"))
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
    """Fail a test that has not ended after `TEST_DEADLINE_S`, with the place where it waits.

    Windows has no such alarm.
    """
    if sys.platform == "win32":
        return (yield)

    def expire(_signal: int, _frame: object) -> None:
        pytest.fail(f"{item.nodeid}: not ended after {TEST_DEADLINE_S} s")

    signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, TEST_DEADLINE_S, DEADLINE_S)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


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
        assert made[-1].try_connect(), made[-1].why
        return made[-1]

    yield connect
    for one in made:
        one.stop()


@pytest.fixture
def topic_root() -> str:
    """A topic root of the test's own, since brokers are shared."""
    return f"t{uuid.uuid4().hex[:12]}"
