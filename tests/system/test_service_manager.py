"""The programs and the service manager: a socket in systemd's place, the real programs."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.fleet import Program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")

DEADLINE_S = 60.0
PLAN = "schema_version = 1\n[[jobs]]\nmodel = 'gbt'\nmode = 'oracle'\n"


class Manager:
    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self.environment = {
            **os.environ, "NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "600000",
        }  # fmt: skip

    def wait_for(self, *starts: str) -> list[str]:
        """Return what is heard until a datagram starts with each of `starts`, in this order."""
        heard: list[str] = []
        wanted = list(starts)
        deadline_s = time.monotonic() + DEADLINE_S
        while wanted:
            self._socket.settimeout(max(0.01, deadline_s - time.monotonic()))
            try:
                heard.append(self._socket.recv(4096).decode())
            except TimeoutError:
                pytest.fail(f"{wanted[0]} did not come; heard: {heard}")
            if heard[-1].startswith(wanted[0]):
                wanted.pop(0)
        return heard

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path / "notify")
    yield made
    made.close()


@pytest.fixture
def run(tmp_path: Path, manager: Manager) -> Iterator[Callable[..., Program]]:
    """`run(module, *arguments)`: one of the programs, started by the manager."""
    started: list[Program] = []

    def start(module: str, *arguments: str) -> Program:
        log = tmp_path / f"{module}.log"
        started.append(Program(module, [*arguments], manager.environment, log))
        started[-1].start(wait=False)
        return started[-1]

    yield start
    for program in started:
        program.kill()


def test_the_broker_is_ready_lives_and_stops(manager: Manager, run: Callable[..., Program]) -> None:
    program = run("broker.embedded", "--listen", "127.0.0.1:0")
    heard = manager.wait_for("READY=1\nSTATUS=listening on 127.0.0.1:", "WATCHDOG=1", "WATCHDOG=1")
    assert all(one.startswith(("READY=1", "WATCHDOG=1")) for one in heard)
    program.stop()
    manager.wait_for("STOPPING=1")


def test_a_reload_of_the_coordinator_has_a_beginning_and_an_end(
    manager: Manager, run: Callable[..., Program], system_broker: str, tmp_path: Path
) -> None:
    """`systemctl reload` sends SIGHUP; the status says what became of the manifest."""
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    program = run(
        "coordinator.service", f"--broker={system_broker}", f"--root=reload{os.getpid()}",
        f"--state={tmp_path / 'state'}", f"--manifest={plan}",
    )  # fmt: skip
    manager.wait_for("READY=1", "STATUS=connected", "WATCHDOG=1")
    program.process.send_signal(signal.SIGHUP)
    manager.wait_for(
        "RELOADING=1\nMONOTONIC_USEC=",
        "STATUS=the manifest was read: no changes, 1 unchanged",
        "READY=1",
        "WATCHDOG=1",
    )
    plan.write_text("[[jobs]]\nmodel = 'none such'\n")
    program.process.send_signal(signal.SIGHUP)
    manager.wait_for("RELOADING=1", "STATUS=the manifest has errors", "READY=1")
    program.stop()
    manager.wait_for("STOPPING=1")


def test_an_agent_without_a_broker_is_ready_and_says_what_it_waits_for(
    manager: Manager, run: Callable[..., Program], tmp_path: Path
) -> None:
    program = run("agent.service", "--broker=mqtt://127.0.0.1:1", f"--state={tmp_path / 'state'}")
    manager.wait_for("READY=1\nSTATUS=connecting", "STATUS=not connected: ", "WATCHDOG=1")
    program.stop()
    manager.wait_for("STOPPING=1")
