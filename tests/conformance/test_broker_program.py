"""The program `fleet broker`: what it says, when it refuses, how it ends."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.embedded.__main__ import STOP_TIMEOUT_S
from broker.system import process
from tests.harness.secure import House

DEADLINE_S = 60.0


def _program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it with a parent that is gone already: if it serves, it ends as soon as it does."""
    return subprocess.run(
        [sys.executable, "-m", "broker.embedded", *arguments],
        stdin=subprocess.DEVNULL, env={**os.environ, process.VARIABLE: "1"},
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("listen", "host"),
    [("127.0.0.1:0", "127.0.0.1"), ("localhost:0", "localhost"), ("[::1]:0", "::1")],
)
def test_the_program_says_where_it_listens_and_ends_with_its_parent(listen: str, host: str) -> None:
    if host == "::1" and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    ended = _program("--listen", listen)
    assert (ended.returncode, ended.stderr) == (0, "")
    ready = json.loads(ended.stdout)
    assert (ready["event"], ready["host"]) == ("listening", host)
    assert 0 < ready["port"] <= 65_535


def test_the_program_serves_websockets_where_it_is_told_to(tmp_path: Path) -> None:
    config = tmp_path / "fleet.toml"
    config.write_text('[broker]\nwebsocket = 0\norigins = ["https://desk.lan"]\n', "utf-8")
    for arguments in (("--websocket", "0"), ("--config", str(config))):
        ended = _program("--listen", "127.0.0.1:0", *arguments)
        assert (ended.returncode, ended.stderr) == (0, "")
        ready = json.loads(ended.stdout)
        assert len({ready["port"], ready["websocket"], 0}) == 3
    ended = _program("--listen", "127.0.0.1:0", "--websocket", "0", "--origin", "desk.lan")
    assert ended.returncode == 2
    assert "--origin desk.lan: write it as a browser does" in ended.stderr


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("--listen", "0.0.0.0:1883"), "make one with 'fleet init'"),
        (("--listen", "1883"), "write it as HOST:PORT"),
        (("--listen", "127.0.0.1:mqtt"), "write it as HOST:PORT"),
        (("--listen", "127.0.0.1:\u00b2"), "write it as HOST:PORT"),
        (("--listen", "127.0.0.1:" + "1" * 5000), "write it as HOST:PORT"),
        (("--listen", "127.0.0.1:65536"), "write it as HOST:PORT"),
        (("--log-level", "LOUD"), "use DEBUG, INFO, WARNING or ERROR"),
    ],
    ids=["network", "no host", "word", "superscript", "long", "too large", "log level"],
)
def test_the_program_refuses_wrong_usage(arguments: tuple[str, ...], remedy: str) -> None:
    ended = _program(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("error: ")
    assert remedy in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_the_program_tells_a_taken_port(embedded_broker: Any) -> None:
    ended = _program("--listen", f"127.0.0.1:{embedded_broker.port}")
    assert (ended.returncode, ended.stdout) == (1, "")
    line, *rest = ended.stderr.splitlines()
    assert line.startswith(f"error: cannot listen on 127.0.0.1:{embedded_broker.port}:")
    assert "choose another port" in line
    assert not rest


@pytest.mark.posix  # a pseudo-terminal is asked for
def test_a_person_at_a_terminal_is_told_in_words() -> None:
    import pty

    ours, its = pty.openpty()
    try:
        program = subprocess.Popen(
            [sys.executable, "-m", "broker.embedded", "--listen", "127.0.0.1:0"],
            stdin=subprocess.PIPE, stdout=its, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            assert select.select([ours], [], [], 30)[0]
            said = os.read(ours, 200).decode()
        finally:
            program.kill()
            program.communicate(timeout=60)
    finally:
        os.close(ours)
        os.close(its)
    assert said.startswith("the broker is listening on 127.0.0.1:")


def test_the_program_tells_an_address_of_another_machine(tmp_path: Path) -> None:
    folder = House.make(tmp_path).broker
    ended = _program("--listen", "192.0.2.99:9999", "--identity", str(folder))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "it is no address of this machine" in ended.stderr
    assert "another port" not in ended.stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_the_program_ends_at_once_with_clients_on_it(
    new_broker: Any, client: Callable[..., Any], how: int
) -> None:
    running = new_broker("embedded")
    clients = [client(running.port, f"c{number}") for number in range(5)]
    begun_s = time.monotonic()
    assert running.end(how) == 0
    assert time.monotonic() - begun_s < STOP_TIMEOUT_S
    assert all(one.gone.wait(DEADLINE_S) for one in clients)


def test_the_program_serves_a_network_with_an_identity(tmp_path: Path) -> None:
    identity = House.make(tmp_path).broker
    ended = _program("--listen", "0.0.0.0:0", "--identity", str(identity), "--root", "site/fleet")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["host"] == "0.0.0.0"  # noqa: S104 - that is the point


def test_the_program_tells_an_identity_that_is_none(tmp_path: Path) -> None:
    ended = _program("--listen", "0.0.0.0:0", "--identity", str(tmp_path))
    assert (ended.returncode, ended.stdout) == (2, "")
    remedy = "'fleet init' makes all of them"
    assert ended.stderr == f"error: --identity {tmp_path}: ca.crt is missing; {remedy}\n"
