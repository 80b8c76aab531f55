"""`fleet doctor`, as a person runs it: real brokers, real trainers, real files."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.brokers import BrokerProcess, mosquitto
from tests.harness.doctor import NOWHERE, checked, checks, doctor
from tests.harness.fleet import ROOT
from tests.harness.verbs import command, process


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder that is not there yet."""
    return tmp_path / "not yet" / "state"


def test_without_a_broker_all_the_rest_is_checked(state: Path, data: Path) -> None:
    """One line a check with its remedy, exit code 1, and nothing on the disk has changed."""
    done = doctor(f"--broker={NOWHERE}", f"--state={state}", f"--data={data}")
    assert (done.returncode, done.stderr) == (1, "")
    levels = {line.split()[1]: line.split()[0] for line in done.stdout.splitlines()}
    assert [name for name, level in levels.items() if level == "fail"] == ["broker"]
    assert (levels["data"], levels["trainers"]) == ("ok", "ok")
    assert (levels["session"], levels["coordinator"]) == ("skip", "skip")
    assert "127.0.0.1:1: Connection refused; start" in done.stdout
    assert not state.parent.exists()


@pytest.fixture
def strict_mosquitto(tmp_path: Path) -> Iterator[Callable[[str], BrokerProcess]]:
    """`strict_mosquitto(lines)`: a mosquitto with further lines of configuration."""
    made: list[BrokerProcess] = []

    def make(lines: str) -> BrokerProcess:
        broker = mosquitto(tmp_path)
        plain = broker.start_command

        def command(port: int) -> list[str]:
            found = plain(port)
            config = Path(found[-1])
            text = config.read_text().replace("allow_anonymous true\n", "")
            config.write_text(f"user {getpass.getuser()}\n{text}{lines}")  # or it cannot read here
            return found

        broker.start_command = command
        broker.start()
        made.append(broker)
        return broker

    yield make
    for broker in made:
        broker.end()


def test_a_broker_that_denies_is_found_out(
    strict_mosquitto: Callable[[str], BrokerProcess], state: Path, tmp_path: Path
) -> None:
    """It acknowledges what it denies: only the message that does not come back tells."""
    acl = tmp_path / "acl"
    acl.write_text("topic read fleet/#\n")
    broker = strict_mosquitto(f"allow_anonymous true\nacl_file {acl}\n")
    found = checked(f"--broker={broker.url}", f"--state={state}")
    assert found["session"][0] == "fail"
    assert "did not come back" in found["session"][1]
    assert found["coordinator"][0] == "skip"


def test_a_broker_that_asks_for_a_password_says_so_and_none_is_shown(
    strict_mosquitto: Callable[[str], BrokerProcess], state: Path
) -> None:
    """The broker's own words; a password that did not fit is not repeated."""
    broker = strict_mosquitto("allow_anonymous false\n")
    url = f"mqtt://ann:hunter22@127.0.0.1:{broker.port}"
    done = doctor("--json", f"--state={state}", FLEET_BROKER=url)
    level, text = checks(done)["session"]
    assert (done.returncode, level) == (1, "fail")
    assert "Not authorized" in text
    assert "hunter22" not in done.stdout + done.stderr


def test_of_a_cluster_one_node_that_answers_is_enough(state: Path, embedded_broker: Any) -> None:
    urls = f"mqtt://127.0.0.1:1,{embedded_broker.url}"
    done = doctor("--role", "coordinator", "--broker", urls, "--state", str(state))
    assert done.returncode == 0, done.stdout
    for line in ("warn  broker ", "ok    broker ", "ok    session "):
        assert line in done.stdout


@pytest.mark.slow
def test_a_listener_that_says_nothing_holds_nobody(state: Path) -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        url = f"mqtt://127.0.0.1:{mute.getsockname()[1]}"
        assert checked(f"--broker={url}", f"--state={state}")["session"][0] == "fail"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mqtt://no-such-host.invalid", "no-such-host.invalid does not resolve"),
        ("http://127.0.0.1", "--broker: the scheme is 'http'"),
    ],
)
def test_an_address_that_leads_nowhere_is_told(url: str, said: str, state: Path) -> None:
    done = doctor(f"--broker={url}", "--plain", f"--state={state}", "--role=coordinator")
    assert done.returncode == 1
    assert said in done.stdout


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mqtt://192.0.2.7", "without TLS"),
        ("mqtts://192.0.2.7", "no identity of the coordinator in "),
    ],
)
def test_beyond_this_machine_the_doctor_asks_for_an_identity(
    url: str, said: str, state: Path
) -> None:
    done = doctor(f"--broker={url}", f"--state={state}", "--role=coordinator")
    assert done.returncode == 1
    assert said in done.stdout
    levels = {line.split()[1]: line.split()[0] for line in done.stdout.splitlines()[:-1]}
    assert levels["identity"] == "fail"
    skipped = {name for name, level in levels.items() if level == "skip"}
    assert skipped == {"broker", "session", "rights"}


@pytest.mark.parametrize("role", ["agent", "coordinator", "operator"])
def test_whatever_is_wrong_each_check_has_its_line(role: str, tmp_path: Path) -> None:
    """What was not looked at says why; here nothing can be read of the settings."""
    config = tmp_path / "fleet.toml"
    config.write_text("[broker]\nurll = 1\n[agent]\nhots = 1\n[coordinator]\nstat = 1\n")
    done = doctor(f"--role={role}", f"--config={config}", "--json")
    found = checks(done)
    assert done.returncode == 1
    assert found["config"][0] == "fail"
    each = {"identity", "broker", "session"}
    each |= {
        "agent": {"host", "state", "disk", "lock", "data", "owner", "coordinator"},
        "coordinator": {"state", "disk", "lock", "manifest", "ca", "rights"},
        "operator": {"coordinator"},
    }[role]
    assert {name for name in found if found[name][0] == "skip"} == each


@pytest.mark.parametrize("role", ["agent", "coordinator", "operator"])
def test_whoever_reads_only_the_first_line_is_told_of_no_fault(role: str, tmp_path: Path) -> None:
    """`fleet doctor | head -1`: whoever reads has gone, as after every other verb."""
    config = tmp_path / "fleet.toml"
    config.write_text("[broker]\nurll = 1\n[agent]\nhots = 1\n[coordinator]\nstat = 1\n")
    ends = os.pipe()
    os.close(ends[0])
    try:
        done = process(
            "doctor", f"--role={role}", f"--config={config}",
            capture_output=False, stdout=ends[1], stderr=subprocess.PIPE,
        )  # fmt: skip
    finally:
        os.close(ends[1])
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.name != "posix", reason="there it is another signal")
@pytest.mark.parametrize("role", ["agent", "coordinator"])
def test_ctrl_c_ends_it_without_a_traceback(role: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"mqtt://127.0.0.1:{silent.getsockname()[1]}"
        running = subprocess.Popen(
            command("doctor", f"--role={role}", f"--state={tmp_path}", f"--broker={url}"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        try:
            silent.accept()[0].close()
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=60)
        finally:
            running.kill()
    assert (running.returncode, said) == (130, "")


def test_a_coordinator_has_its_manifest_checked(state: Path, tmp_path: Path) -> None:
    """The first error, and how to see the others."""
    plan = tmp_path / "plan.toml"
    plan.write_text("schema_version = 1\n[[jobs]]\nmodel = 'gbtt'\nmode = 'oracle'\n")
    where = ["--role=coordinator", f"--broker={NOWHERE}", f"--state={state}"]
    assert checked(*where)["manifest"][0] == "warn"
    level, text = checked(*where, f"--manifest={plan}")["manifest"]
    assert (level, "gbtt" in text, "fleet check" in text) == ("fail", True, True)
    plan.write_text(plan.read_text().replace("gbtt", "gbt"))
    assert checked(*where, f"--manifest={plan}")["manifest"][1].endswith("1 job; ")


def test_a_state_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "state"
    found = checked("--role=coordinator", f"--broker={NOWHERE}", f"--state={folder}")
    assert found["state"][0] == "fail"


@pytest.mark.slow
def test_damaged_data_and_a_trainer_that_is_not_there_are_told(
    tmp_path: Path, data: Path, state: Path
) -> None:
    """Data is compared with its own hashes; an own trainer is started as the agent would."""
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    with (copy / "features_window_v1.parquet").open("r+b") as file:
        file.seek(100)
        file.write(b"\0\1\2\3")
    config = tmp_path / "fleet.toml"
    config.write_text(
        "[trainers.broken]\n"
        f"command = ['{sys.executable}', '-c', 'raise SystemExit(127)']\n"
        "schema = { type = 'object', properties = {} }\n"
        "[trainers.mine]\n"
        f"command = ['{sys.executable}', '-c', 'raise SystemExit(2)']\n"
        "schema = { type = 'object', properties = {} }\n"
    )
    where = [f"--broker={NOWHERE}", f"--state={state}", f"--config={config}"]
    found = checked(*where, f"--data={copy}")
    assert found["data"][0] == "fail"
    assert "features_window_v1.parquet" in found["data"][1]
    assert found["trainers"][1].startswith("broken: ends with exit code 127")
    assert checked(*where, f"--data={tmp_path}")["data"][0] == "fail"


def test_an_option_of_the_other_role_is_refused() -> None:
    """Exit code 2, as with every wrong usage."""
    done = doctor("--role=coordinator", "--data=/srv")
    assert done.returncode == 2
    assert "--data: only with --role agent" in done.stderr
