"""`fleet doctor` as a person runs it: alone, and beside programs that run."""

from __future__ import annotations

import contextlib
import json
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

from broker.protocol.acl import REWRITE_RIGHTS
from tests.harness.brokers import BrokerProcess, mosquitto
from tests.harness.fleet import ROOT, Fleet, Program
from tests.harness.owner import Owner
from tests.harness.verbs import Done, command, process, verb

Check = Callable[..., dict[str, tuple[str, str]]]
NOWHERE = "mqtt://127.0.0.1:1"


def doctor(*arguments: str, **variables: str) -> Done:
    return process("doctor", *arguments, environment=variables)


def checks(done: Done) -> dict[str, tuple[str, str]]:
    """Return level and text of each check; of several with one name the worst."""
    found: dict[str, tuple[str, str]] = {}
    for one in json.loads(done.stdout)["checks"]:
        if one["level"] != "ok" or one["check"] not in found:
            found[one["check"]] = (one["level"], f"{one['text']}; {one['remedy']}")
    return found


def checked(*arguments: str, **variables: str) -> dict[str, tuple[str, str]]:
    """Run it for a script; see `checks`."""
    return checks(doctor(*arguments, "--json", **variables))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder that is not there yet."""
    return tmp_path / "not yet" / "state"


def test_without_a_broker_all_the_rest_is_checked(state: Path, data: Path) -> None:
    done = doctor(f"--broker={NOWHERE}", f"--state={state}", f"--data={data}")
    assert (done.returncode, done.stderr) == (1, "")
    levels = {line.split()[1]: line.split()[0] for line in done.stdout.splitlines()}
    assert [name for name, level in levels.items() if level == "fail"] == ["broker"]
    assert (levels["data"], levels["trainers"]) == ("ok", "ok")
    assert (levels["session"], levels["coordinator"]) == ("skip", "skip")
    assert "127.0.0.1:1: Connection refused; start" in done.stdout
    assert not state.parent.exists()


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Callable[[str], BrokerProcess]]:
    """`strict(lines)`: a mosquitto whose configuration has these lines."""
    with contextlib.ExitStack() as stack:

        def start(lines: str) -> BrokerProcess:
            broker = mosquitto(tmp_path, lines)
            broker.start()
            stack.callback(broker.end)
            return broker

        yield start


def test_a_broker_that_denies_is_found_out(
    strict: Callable[[str], BrokerProcess], state: Path, tmp_path: Path
) -> None:
    """It acknowledges what it denies: only the message that does not come back tells."""
    acl = tmp_path / "acl"
    acl.write_text("topic read fleet/#\n")
    broker = strict(f"allow_anonymous true\nacl_file {acl}\n")
    found = checked(f"--broker={broker.url}", f"--state={state}")
    assert found["session"][0] == "fail"
    assert "did not come back" in found["session"][1]
    assert found["coordinator"][0] == "skip"


def test_a_broker_with_older_rights_is_found_out(
    strict: Callable[[str], BrokerProcess], state: Path, tmp_path: Path
) -> None:
    """They know nothing of the topic by which coordinators find each other; the fleet works."""
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite fleet/#\ntopic deny fleet/coordinator/holder\n")
    broker = strict(f"allow_anonymous true\nacl_file {acl}\n")
    done = doctor("--role=coordinator", "--json", f"--broker={broker.url}", f"--state={state}")
    level, text = checks(done)["rights"]
    assert (done.returncode, level) == (0, "warn")
    assert "a word in fleet/coordinator/holder did not come back" in text
    assert REWRITE_RIGHTS in text


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


NOT_ASKED = {"broker", "session", "rights"}


@pytest.mark.parametrize(
    ("url", "said", "skipped"),
    [
        ("mqtt://no-such-host.invalid", "no-such-host.invalid does not resolve", set()),
        ("http://127.0.0.1", "--broker: the scheme is 'http'", set()),
        ("mqtt://192.0.2.7", "without TLS", NOT_ASKED),
        ("mqtts://192.0.2.7", "no identity of the coordinator in ", NOT_ASKED),
    ],
)
def test_an_address_that_leads_nowhere_or_wants_an_identity_is_told(
    url: str, said: str, skipped: set[str], state: Path
) -> None:
    plain = [] if skipped else ["--plain"]
    done = doctor(f"--broker={url}", f"--state={state}", "--role=coordinator", *plain)
    assert (done.returncode, said in " ".join(done.stdout.split())) == (1, True)
    if skipped:
        levels = {line.split()[1]: line.split()[0] for line in done.stdout.splitlines()[:-1]}
        assert levels["identity"] == "fail"
        assert {name for name, level in levels.items() if level == "skip"} == skipped


EACH = {
    "agent": {"host", "state", "disk", "lock", "data", "owner", "coordinator"},
    "coordinator": {"state", "disk", "lock", "manifest", "ca", "rights"},
    "operator": {"coordinator"},
}


@pytest.mark.parametrize("role", EACH)
def test_whatever_is_wrong_each_check_has_its_line(role: str, tmp_path: Path) -> None:
    """Here nothing can be read of the settings; `| head -1` is no fault of the doctor."""
    config = tmp_path / "fleet.toml"
    config.write_text("[broker]\nurll = 1\n[agent]\nhots = 1\n[coordinator]\nstat = 1\n")
    done = doctor(f"--role={role}", f"--config={config}", "--json")
    found = checks(done)
    assert done.returncode == 1
    assert found["config"][0] == "fail"
    skipped = {name for name, (level, _) in found.items() if level == "skip"}
    assert skipped == {"identity", "broker", "session"} | EACH[role]
    ends = os.pipe()
    os.close(ends[0])
    try:
        streams = {"capture_output": False, "stdout": ends[1], "stderr": subprocess.PIPE}
        done = process("doctor", f"--role={role}", f"--config={config}", **streams)
    finally:
        os.close(ends[1])
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.posix  # there it is another signal
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
    assert found["trainers"][1].startswith("broken: ended with exit code 127")
    assert checked(*where, f"--data={tmp_path}")["data"][0] == "fail"


def test_an_option_of_the_other_role_is_refused() -> None:
    done = doctor("--role=coordinator", "--data=/srv")
    assert done.returncode == 2
    assert "--data: only with --role agent" in done.stderr


@pytest.fixture
def check(fleet: Fleet) -> Check:
    """`check(state, *arguments)`: what the doctor finds in a folder of the test's fleet."""
    where = (f"--broker={fleet.broker_url}", f"--root={fleet.root}")
    return lambda state, *more: checked(*where, f"--state={fleet.tmp / state}", *more)


@pytest.mark.smoke
def test_with_a_broker_and_a_coordinator_all_is_well(
    fleet: Fleet, check: Check, data: Path
) -> None:
    coordinator = fleet.coordinator()
    found = check("new", f"--data={data}")
    assert {level for level, _ in found.values()} == {"ok"}
    assert "name" not in found
    assert "another coordinator" in check("new", "--role=coordinator")["name"][1]
    itself = check("coordinator", "--role=coordinator")
    assert f"runs (process {coordinator.process.pid})" in itself["lock"][1]
    assert itself["session"][0] == "ok"
    assert "name" not in itself


@pytest.mark.slow
def test_an_agent_of_the_same_name_elsewhere_is_told(fleet: Fleet, check: Check) -> None:
    agent = fleet.agent("desk")
    level, text = check("new", "--host=desk")["name"]
    assert (level, "another agent" in text) == ("warn", True)
    here = check("desk", "--host=desk")
    assert (here["session"][0], here["coordinator"][0]) == ("ok", "warn")
    assert "name" not in here
    assert agent.process.poll() is None
    assert "not connected" not in agent.said()


def test_the_plan_of_a_coordinator_that_runs_here_is_left_to_it(fleet: Fleet, check: Check) -> None:
    """The ways to it are told; a plan that is named is looked at, and what tells of its hosts."""
    fleet.plan('model = "gbt"\nmode = "oracle"\nallowed_hosts = ["atic"]')
    fleet.coordinator()
    role = ("coordinator", "--role=coordinator")
    found = check(*role)
    assert (found["manifest"][0], "fleet status" in found["manifest"][1]) == ("skip", True)
    assert (found["ca"][0], "--ca" in found["ca"][1]) == ("skip", True)
    level, text = check(*role, f"--manifest={fleet.manifest}")["manifest"]
    assert (level, "1 job; `fleet check" in text) == ("ok", True)


def test_the_data_of_the_agent_that_runs_here_is_what_counts(
    owner: Owner, program: Callable[..., Program], system_broker: str, data: Path, tmp_path: Path
) -> None:
    config = tmp_path / "agents.toml"
    config.write_text(f"[agent]\ndata = '{data}'\n")
    name = f"beside-{os.getpid()}"
    who = (f"--broker={system_broker}", f"--root={name}", f"--host={name}")
    its = (*who, f"--state={tmp_path / 'agent'}")
    agent = program(owner, "agent.service", *its, f"--config={config}")
    for state in ("agent", "another"):
        level, text = checked(*who, f"--state={tmp_path / state}")["data"]
        assert level == "ok"
        assert f"the agent that runs here (process {agent.process.pid}) has it" in text
    named = checked(*its, f"--data={tmp_path}")
    assert named["data"][0] == "fail", "what is named is what is asked about"
    agent.stop()
    program(owner, "agent.service", *its)
    level, text = checked(*its)["data"]
    assert (level, "was told of no prepared data" in text) == ("warn", True)


@pytest.fixture
def persons_home(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine where `fleet init` was run: a person's identity, no host's."""
    home = {"XDG_CONFIG_HOME": str(tmp_path / "owner"), "XDG_STATE_HOME": str(tmp_path / "s")}
    verb("init", "--broker", "127.0.0.1", "--operator", "alice", environment=home).text()
    return home


def test_a_persons_machine_is_checked_as_that_person(
    persons_home: dict[str, str], owner: Owner, program: Callable[..., Program], tmp_path: Path
) -> None:
    """The identity that is there, the broker, the coordinator; nothing that only an agent needs."""
    identity = f"--identity={owner.fleet / 'broker'}"
    served = program(owner, "broker.embedded", "--listen", "127.0.0.1:0", identity)
    url = f"--broker=mqtts://127.0.0.1:{served.ready['port']}"
    done = doctor(url, "--json", **persons_home)
    assert (done.json()["role"], done.json()["ok"]) == ("operator", True)
    found = checks(done)
    assert [name for name, (level, _) in found.items() if level != "ok"] == ["coordinator"]
    assert "operator:alice" in found["session"][1]
    assert "trainers" not in found
    program(owner, "coordinator.service", url, f"--state={tmp_path / 'c'}")
    found = checked(url, **persons_home)
    assert (found["coordinator"][0], found["clock"][0]) == ("ok", "ok")


def test_who_says_what_the_machine_is_to_be_is_taken_at_their_word(
    persons_home: dict[str, str], tmp_path: Path
) -> None:
    nowhere = "--broker=mqtts://127.0.0.1:1"
    assert checked(nowhere, **persons_home)["broker"][0] == "fail"
    for said in ("--role=agent", f"--state={tmp_path / 'state'}"):
        level, text = checked(nowhere, said, **persons_home)["identity"]
        assert (level, "no identity of a host" in text) == ("fail", True)
