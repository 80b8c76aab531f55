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
from tests.harness.doctor import NOWHERE, checks, doctor
from tests.harness.fleet import ROOT


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder that is not there yet."""
    return tmp_path / "not yet" / "state"


def test_without_a_broker_all_the_rest_is_checked(state: Path, data: Path) -> None:
    """One line a check with its remedy, exit code 1, and nothing on the disk has changed."""
    done = doctor(f"--broker={NOWHERE}", f"--state={state}", f"--data={data}")
    assert (done.returncode, done.stderr) == (1, "")
    lines = {line.split()[1]: line for line in done.stdout.splitlines()}
    assert lines["broker"].startswith("fail  broker       127.0.0.1:1: Connection refused; start")
    assert [line for line in lines.values() if line.startswith("fail")] == [lines["broker"]]
    assert lines["data"].endswith("every file checked")
    models = "gbt, mlp, cnn, gru, lstm, transformer and transformer_ssl"
    assert lines["trainers"] == f"ok    trainers     {models} start"
    reason = "not tried: the broker takes no connection; mend that first"
    assert lines["session"] == f"skip  session      {reason}"
    assert lines["coordinator"] == f"skip  coordinator  {reason}"
    assert done.stdout.splitlines()[-1].endswith("not looked at: session, coordinator.")
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
    done = doctor(f"--broker=mqtt://127.0.0.1:{broker.port}", f"--state={state}", "--json")
    level, text = checks(done)["session"]
    assert (done.returncode, level) == (1, "fail")
    assert text.startswith("connected, but a message to itself did not come back")
    assert checks(done)["coordinator"][0] == "skip"


def test_a_broker_that_asks_for_a_password_says_so_and_none_is_shown(
    strict_mosquitto: Callable[[str], BrokerProcess], state: Path
) -> None:
    """The broker's own words; a password that did not fit is not repeated."""
    broker = strict_mosquitto("allow_anonymous false\n")
    url = f"mqtt://ann:hunter22@127.0.0.1:{broker.port}"
    done = doctor("--json", f"--state={state}", FLEET_BROKER=url)
    level, text = checks(done)["session"]
    assert (done.returncode, level) == (1, "fail")
    assert "the broker refused the connection: Not authorized" in text
    assert "hunter22" not in done.stdout + done.stderr


def test_of_a_cluster_one_node_that_answers_is_enough(state: Path, embedded_broker: Any) -> None:
    """The others are told all the same."""
    urls = f"mqtt://127.0.0.1:1,{embedded_broker.url}"
    done = doctor("--role", "coordinator", "--broker", urls, "--state", str(state))
    text = done.stdout
    assert done.returncode == 0, text
    assert "warn  broker       127.0.0.1:1: Connection refused" in text
    assert f"ok    broker       127.0.0.1:{embedded_broker.port} takes connections" in text
    assert "ok    session" in text


@pytest.mark.slow
def test_a_listener_that_says_nothing_holds_nobody(state: Path) -> None:
    """Every wait has a deadline."""
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        url = f"mqtt://127.0.0.1:{mute.getsockname()[1]}"
        level, text = checks(doctor(f"--broker={url}", f"--state={state}", "--json"))["session"]
    assert level == "fail"
    assert "no answer to the connection in" in text


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mqtt://no-such-host.invalid", "no-such-host.invalid does not resolve"),
        ("http://127.0.0.1", "--broker: the scheme is 'http'"),
    ],
)
def test_an_address_that_leads_nowhere_is_told(url: str, said: str, state: Path) -> None:
    """By name, with the remedy."""
    done = doctor(f"--broker={url}", "--plain", f"--state={state}", "--role=coordinator")
    assert done.returncode == 1
    assert said in done.stdout


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mqtt://192.0.2.7", "without TLS, anybody on the way can read and change everything"),
        ("mqtts://192.0.2.7", "no identity of the coordinator in "),
    ],
)
def test_beyond_this_machine_the_doctor_asks_for_an_identity(
    url: str, said: str, state: Path
) -> None:
    """As the program itself would, before anything is sent."""
    done = doctor(f"--broker={url}", f"--state={state}", "--role=coordinator")
    assert done.returncode == 1
    assert said in done.stdout
    assert "fail  identity" in done.stdout
    skipped = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("skip")]
    rest = ["broker", "session", "rights"]
    assert skipped == rest
    assert done.stdout.splitlines()[-1].endswith(f"not looked at: {', '.join(rest)}.")


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
    assert found["session"][1] == (
        "not looked at: the settings are at fault; mend them first: see config"
    )


@pytest.mark.parametrize("role", ["agent", "coordinator", "operator"])
def test_whoever_reads_only_the_first_line_is_told_of_no_fault(role: str, tmp_path: Path) -> None:
    """`fleet doctor | head -1`: whoever reads has gone, as after every other verb."""
    config = tmp_path / "fleet.toml"
    config.write_text("[broker]\nurll = 1\n[agent]\nhots = 1\n[coordinator]\nstat = 1\n")
    ends = os.pipe()
    os.close(ends[0])
    command = ["doctor", f"--role={role}", f"--config={config}"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "coordinator.cli", *command],
            stdout=ends[1], stderr=subprocess.PIPE, text=True, timeout=60, check=False, cwd=ROOT,
        )  # fmt: skip
    finally:
        os.close(ends[1])
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.name != "posix", reason="there it is another signal")
@pytest.mark.parametrize("role", ["agent", "coordinator"])
def test_ctrl_c_ends_it_without_a_traceback(role: str, tmp_path: Path) -> None:
    """While it waits for a broker that says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"mqtt://127.0.0.1:{silent.getsockname()[1]}"
        command = ["doctor", f"--role={role}", f"--state={tmp_path}", f"--broker={url}"]
        running = subprocess.Popen(
            [sys.executable, "-m", "coordinator.cli", *command],
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
    where = ["--role=coordinator", f"--broker={NOWHERE}", f"--state={state}", "--json"]
    assert checks(doctor(*where))["manifest"][0] == "warn"
    level, text = checks(doctor(*where, f"--manifest={plan}"))["manifest"]
    assert level == "fail"
    assert "gbtt" in text
    assert "fleet check" in text
    plan.write_text(plan.read_text().replace("gbtt", "gbt"))
    assert checks(doctor(*where, f"--manifest={plan}"))["manifest"][1].endswith("1 job; ")


def test_a_state_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    """Here: a file stands in its way."""
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "state"
    done = doctor("--role=coordinator", f"--broker={NOWHERE}", f"--state={folder}", "--json")
    assert checks(done)["state"][0] == "fail"


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
    where = [f"--broker={NOWHERE}", f"--state={state}", f"--config={config}", "--json"]
    done = doctor(*where, f"--data={copy}")
    found = checks(done)
    assert found["data"][0] == "fail"
    assert "features_window_v1.parquet: is not the file that the schema names" in found["data"][1]
    assert found["trainers"][1].startswith("broken: ends with exit code 127")
    assert "transformer_ssl and mine start" in done.stdout
    assert checks(doctor(*where, f"--data={tmp_path}"))["data"][1].startswith(
        f"{tmp_path}: no prepared data is there"
    )


def test_an_option_of_the_other_role_is_refused() -> None:
    """Exit code 2, as with every wrong usage."""
    done = doctor("--role=coordinator", "--data=/srv")
    assert done.returncode == 2
    assert "--data: only with --role agent" in done.stderr
