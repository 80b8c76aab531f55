"""Brokers as processes: the embedded one and, where installed, mosquitto."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.waiting import wait_until

DEADLINE_S = 60.0
_PORTS = random.SystemRandom()  # each test process draws others


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
    scheme: str = "mqtt"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        if not self.announces:
            self.port = self.port or free_port()
        self.process = subprocess.Popen(
            self.start_command(self.port),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if self.announces else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if self.announces:
            self._read_ready_line(self.process)
        else:
            wait_until(self._answers, "the broker takes no connection", DEADLINE_S)

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

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "the broker ended by itself"
        return listens(self.port, self.host)


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Tell whether somebody takes connections there."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1.0):
        return True
    return False


def free_port() -> int:
    """Return a port that nobody listens on.

    Below those that systems give to connections: one of these might have it before the program that
    is to listen there has started.
    """
    for _ in range(100):
        port = _PORTS.randint(10_000, 32_000)
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("", port))
            return port
    raise RuntimeError("no port below 32,000 seems to be free")


def find_program(name: str) -> str:
    """Return where a program is; skip the test where it is not installed."""
    program = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin")
    if program is None:
        pytest.skip(f"{name} is not installed")
    return program


def embedded() -> BrokerProcess:
    return BrokerProcess(
        lambda port: [sys.executable, "-m", "broker.embedded", "--listen", f"127.0.0.1:{port}"],
        announces=True,
    )


def mosquitto(folder: Path, lines: str = "allow_anonymous true\n") -> BrokerProcess:
    """Return a mosquitto, not started; skip the test where it is not installed.

    `lines` are more of its configuration: who is let in, and what that may do.
    """
    program = find_program("mosquitto")

    def command(port: int) -> list[str]:
        config = folder / f"mosquitto-{port}.conf"
        config.write_text(
            f"listener {port} 127.0.0.1\n{lines}set_tcp_nodelay true\n"
            "max_packet_size 1200000\nmax_queued_messages 100000\n"
            f"user {getpass.getuser()}\n"  # else it may not read what is here
        )
        return [program, "-c", str(config)]

    return BrokerProcess(command, announces=False)
