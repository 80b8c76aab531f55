"""A fleet over TLS that everybody has a try at."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import rawmqtt
from tests.harness.fleet import ROOT, Program
from tests.harness.secure import House


class Attacked:
    """A broker with certificates and a coordinator, each a process; and those who attack them."""

    def __init__(self, tmp: Path) -> None:
        self.tmp = tmp
        self.house = House.make(tmp / "house")
        self.alice = self.house.identity("operator:alice")
        self.programs: list[Program] = []
        identity = ("--identity", str(tmp / "house" / "broker"))
        self.port = self.start("broker.embedded", "--listen", "127.0.0.1:0", *identity)["port"]
        self.url = f"mqtts://127.0.0.1:{self.port}"
        own = ("--identity", str(self.house.identity("coordinator")), "--broker", self.url)
        self.start("coordinator.service", *own, "--state", str(tmp / "coordinator"))

    def start(self, module: str, *arguments: str) -> dict[str, Any]:
        """Start a program; what it says when it is ready."""
        environment = {"XDG_CONFIG_HOME": str(self.tmp / "none"), "PATH": "/usr/bin:/bin"}
        log = self.tmp / f"{module}.log"
        self.programs.append(Program(module, list(arguments), environment, log))
        return self.programs[-1].start()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        where = ("--broker", self.url, "--identity", str(self.alice))
        return subprocess.run(
            [sys.executable, "-m", "coordinator.cli", *where, *arguments],
            capture_output=True, text=True, timeout=60, cwd=ROOT, check=False,
            env={"COLUMNS": "80", "PATH": "/usr/bin:/bin", "HOME": str(self.tmp)},
        )  # fmt: skip

    def cli(self, *arguments: str) -> str:
        ran = self.run(*arguments)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.cli("status", "--json"))
        return found

    def tls(self, folder: Path) -> ssl.SSLContext:
        """What a client with the certificate in a folder speaks."""
        return self.house.context(folder)

    def knock(self, context: ssl.SSLContext | None, *packets: bytes) -> bytes:
        """Connect, say something, and return what comes back until there is silence or the end."""
        try:
            with rawmqtt.wire(self.port, context) as connection:
                connection.settimeout(5)
                connection.sendall(b"".join(packets))
                return _all(connection)
        except OSError:
            return b""


def _all(connection: socket.socket) -> bytes:
    seen = b""
    while True:
        try:
            data = connection.recv(4096)
        except OSError:
            return seen
        seen += data
        if not data or data.endswith(b"\xd0\x00"):  # PINGRESP: all before it has been seen to
            return seen


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """A fleet that everybody has a try at."""
    made = Attacked(tmp_path_factory.mktemp("attacked"))
    yield made
    for one in reversed(made.programs):
        one.kill()
