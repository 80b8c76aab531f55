"""`fleet up` on somebody else's broker, and what it says of one that does not do."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import brokers

ROOT = Path(__file__).resolve().parents[2]


def _environment(**more: str) -> dict[str, str]:
    bare = {key: value for key, value in os.environ.items() if not key.startswith("FLEET_")}
    return bare | more


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=180, env=environment, cwd=ROOT, check=False
    )


def _elsewhere(folder: Path, *more: str) -> list[str]:
    """On somebody else's broker, with a coordinator alone."""
    words = ["up", "--agents", "0", "--state", str(folder / "state"), *more]
    return [sys.executable, "-m", "coordinator.cli", *words]


@pytest.mark.parametrize("named_by", ["FLEET_BROKER", "--broker"])
def test_whose_broker_is_used_is_said_first_and_that_nobody_listens_there(
    tmp_path: Path, named_by: str
) -> None:
    """A broker that was told of in another window and is gone: no fleet waits for it in silence."""
    with socket.socket() as taken:  # and does not listen
        taken.bind(("127.0.0.1", 0))
        url = f"mqtt://127.0.0.1:{taken.getsockname()[1]}"
        given = {"FLEET_BROKER": url} if named_by == "FLEET_BROKER" else {}
        more = [] if given else ["--broker", url]
        done = _run(_elsewhere(tmp_path, *more), _environment(**given))
        as_json = _run(_elsewhere(tmp_path, *more, "--json"), _environment(**given))
    assert done.returncode == as_json.returncode == 1, done.stderr
    assert done.stdout == f"using the broker of {named_by}: {url}\n"
    assert f"the broker of {named_by} is not reachable" in done.stderr
    remedy = "`unset FLEET_BROKER`" if given else "without --broker"
    assert remedy in done.stderr
    assert json.loads(as_json.stdout)["ok"] is False
    assert as_json.stderr.startswith(done.stdout)
    assert not (tmp_path / "state").exists()


def test_a_broker_of_somebody_else_is_used_and_a_port_for_it_is_refused(
    tmp_path: Path, system_broker: str
) -> None:
    """None is started beside it, so there is nothing that could listen at `--port`."""
    given = _environment(FLEET_BROKER=system_broker, FLEET_TOPIC_ROOT=f"up-{os.getpid()}")
    done = _run(_elsewhere(tmp_path, "--until-idle"), given)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"using the broker of FLEET_BROKER: {system_broker}\n")
    assert not (tmp_path / "state" / "logs" / "broker.log").exists()
    refused = _run(_elsewhere(tmp_path, "--port", "1883"), given)
    assert refused.returncode == 2
    words = " ".join(refused.stderr.split())
    assert "--port is of a broker of its own, and FLEET_BROKER names another" in words
    assert "`unset FLEET_BROKER`" in words


def _strict(folder: Path, lines: str) -> brokers.BrokerProcess:
    """A real mosquitto with these lines instead of letting everybody do anything; it runs."""
    broker = brokers.mosquitto(folder)
    plain = broker.start_command

    def command(port: int) -> list[str]:
        found = plain(port)
        config = Path(found[-1])
        text = config.read_text().replace("allow_anonymous true\n", lines)
        config.write_text(f"user {getpass.getuser()}\n{text}")  # or it cannot read what is here
        return found

    broker.start_command = command
    broker.start()
    return broker


@pytest.fixture
def with_password(tmp_path: Path) -> Iterator[str]:
    """A broker that lets ann in, by her password, and nobody else: its HOST:PORT."""
    keep = shutil.which("mosquitto_passwd")
    if keep is None:
        pytest.skip("mosquitto_passwd is not installed")
    passwords = tmp_path / "passwords"
    subprocess.run([keep, "-b", "-c", str(passwords), "ann", "right"], check=True)
    broker = _strict(tmp_path, f"allow_anonymous false\npassword_file {passwords}\n")
    yield f"127.0.0.1:{broker.port}"
    broker.end()


def _refusal(folder: Path, url: str) -> str:
    """What `fleet up` says of a broker that does not do; it has started nothing."""
    begun_s = time.monotonic()
    done = _run(_elsewhere(folder), _environment(FLEET_BROKER=url, COLUMNS="10000"))
    assert done.returncode == 1, done.stderr
    assert time.monotonic() - begun_s < 60, "a program that waits for its broker tries on"
    assert "the broker of FLEET_BROKER does not do for a fleet: " in done.stderr
    assert "`unset FLEET_BROKER`, and `fleet up` starts one of its own" in done.stderr
    assert not (folder / "state").exists()
    return done.stdout + done.stderr


def test_a_broker_that_wants_a_password_is_told_before_anything_is_started(
    tmp_path: Path, with_password: str
) -> None:
    """None, a wrong one, TLS where there is none: each by what helps; the right one does."""
    said = _refusal(tmp_path, f"mqtt://{with_password}")
    assert "refused the connection: Not authorized" in said
    assert "write mqtt://USER:PASSWORD@HOST" in said
    said = _refusal(tmp_path, f"mqtt://ann:hunter22@{with_password}")
    assert "refused the connection: Not authorized" in said
    assert "see that the user and the password in the address are right" in said
    assert "hunter22" not in said
    said = _refusal(tmp_path, f"mqtts://ann:right@{with_password}")
    assert "does that port speak TLS? if not, write mqtt://" in said
    assert "certificate" not in said
    given = _environment(FLEET_BROKER=f"mqtt://ann:right@{with_password}")
    done = _run(_elsewhere(tmp_path, "--until-idle"), given)
    assert done.returncode == 0, done.stderr
