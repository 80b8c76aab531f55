"""What the service manager hears, on real sockets; the programs' side is in tests/system."""

from __future__ import annotations

import socket
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.system.systemd import Notifier

pytestmark = pytest.mark.posix  # systemd is Linux's


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a service manager, at `tmp_path / "notify"`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(60)
        yield heard


def _nothing_comes(manager: socket.socket) -> bool:
    manager.setblocking(False)
    try:
        manager.recv(4096)
    except BlockingIOError:
        return True
    return False


def test_each_state_is_a_datagram_of_its_own(manager: socket.socket, tmp_path: Path) -> None:
    """As sd_notify(3) has it; a status is one line, whatever is in it."""
    notifier = Notifier(str(tmp_path / "notify"), None)
    notifier.ready("serving\nREADY=0")
    assert manager.recv(4096) == b"READY=1\nSTATUS=serving READY=0"
    notifier.status("x" * 1000)
    assert manager.recv(4096) == b"STATUS=" + b"x" * 300
    notifier.reloading(12.5)
    assert manager.recv(4096) == b"RELOADING=1\nMONOTONIC_USEC=12500000"
    notifier.stopping()
    assert manager.recv(4096) == b"STOPPING=1\nSTATUS=stopping"
    notifier.close()
    notifier.ready()
    assert _nothing_comes(manager)


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")
def test_the_socket_may_be_an_abstract_one() -> None:
    name = f"fleet-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name)
        manager.settimeout(60)
        notifier = Notifier("@" + name, None)
        notifier.ready()
        notifier.close()
        assert manager.recv(4096) == b"READY=1"


def test_signs_of_life_come_thrice_an_interval(manager: socket.socket, tmp_path: Path) -> None:
    """Not at each turn of a busy loop, and an idle loop does not sleep through one."""
    notifier = Notifier(str(tmp_path / "notify"), 30.0)
    for mono_s in (100.0, 100.1, 109.9, 110.0, 115.0):
        notifier.alive(mono_s)
    assert [manager.recv(4096) for _ in range(2)] == [b"WATCHDOG=1"] * 2
    assert _nothing_comes(manager)
    assert notifier.wait_s(None, 115.0) == 5.0
    assert notifier.wait_s(2.0, 115.0) == 2.0
    assert notifier.wait_s(60.0, 130.0) == 0.0
    notifier.close()


@pytest.mark.parametrize(
    ("variables", "ping_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "3000000"}, 1.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "42"}, 1.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "43"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_environment_says_whether_signs_of_life_are_wanted(
    variables: dict[str, str], ping_s: float | None
) -> None:
    """sd_watchdog_enabled(3); and no trainer inherits any of it."""
    environment = {"NOTIFY_SOCKET": "/run/notify", "PATH": "/bin", **variables}
    notifier = Notifier.take(environment, 42)
    notifier.close()
    assert notifier.ping_s == ping_s
    assert environment == {"PATH": "/bin"}


@pytest.mark.parametrize("address", [None, "", "relative", "vsock:2:1234", "/no/such/socket"])
def test_a_manager_that_does_not_listen_is_no_fault(address: str | None) -> None:
    notifier = Notifier(address, 1.0)
    notifier.ready("x")
    notifier.alive(1.0)
    notifier.stopping()
    notifier.close()
