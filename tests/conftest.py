"""Brokers for tests: the embedded one and, where installed, mosquitto; real processes both."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

DEADLINE_S = 20.0


@dataclass
class BrokerProcess:
    """A broker as a process; it can be killed and started again on the same port."""

    start_command: Callable[[int], list[str]]
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def url(self) -> str:
        """Its address as people write it."""
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        self.port = self.port or _free_port()
        self.process = subprocess.Popen(
            self.start_command(self.port),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
            except OSError:
                assert self.process.poll() is None, "the broker ended by itself"
                assert time.monotonic() < deadline_s, "the broker takes no connection"
                time.sleep(0.02)
            else:
                return

    def end(self, how: int = signal.SIGTERM) -> int:
        """End it and return its exit code."""
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(DEADLINE_S)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _embedded(port: int) -> list[str]:
    return [sys.executable, "-m", "broker.server", "--listen", f"127.0.0.1:{port}"]


def _mosquitto(folder: Path) -> Callable[[int], list[str]]:
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

    return command


@pytest.fixture
def new_broker(
    tmp_path: Path,
) -> Iterator[Callable[[str], BrokerProcess]]:
    """`new_broker("embedded" or "mosquitto")`: a broker of the test's own."""
    made: list[BrokerProcess] = []

    def start(kind: str) -> BrokerProcess:
        command = _embedded if kind == "embedded" else _mosquitto(tmp_path)
        broker = BrokerProcess(command)
        broker.start()
        made.append(broker)
        return broker

    yield start
    for broker in made:
        if broker.process is not None and broker.process.poll() is None:
            broker.end(signal.SIGKILL)


@pytest.fixture(scope="session", params=["embedded", "mosquitto"])
def any_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """Each of the brokers in turn, shared by all tests."""
    folder = tmp_path_factory.mktemp("broker")
    broker = BrokerProcess(_embedded if request.param == "embedded" else _mosquitto(folder))
    broker.start()
    yield broker
    broker.end()


@pytest.fixture
def topic_root() -> str:
    """A topic root of the test's own, since brokers are shared."""
    return f"t{uuid.uuid4().hex[:12]}"
