"""`fleet doctor` beside programs that run: an agent, a coordinator, a person's broker."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.harness.doctor import checks, doctor
from tests.harness.fleet import Program
from tests.harness.verbs import verb


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder that is not there yet."""
    return tmp_path / "not yet" / "state"


@pytest.mark.smoke
def test_with_a_broker_and_a_coordinator_all_is_well(
    system_broker: str, state: Path, data: Path, tmp_path: Path
) -> None:
    """Exit code 0; without `--data`, no job could be taken, and it says so."""
    root = f"--root=doctor{os.getpid()}"
    where = [f"--broker={system_broker}", root]
    coordinator = Program(
        "coordinator.service", [*where, f"--state={tmp_path / 'coordinator'}"],
        dict(os.environ), tmp_path / "log",
    )  # fmt: skip
    coordinator.start()
    try:
        done = doctor(*where, f"--state={state}", f"--data={data}", "--json")
        found = checks(done)
        assert done.returncode == 0
        assert found["session"][1].startswith("a message went and came back in")
        assert found["coordinator"] == ("ok", "is online; ")
        assert "name" not in found
        here = [*where, "--role=coordinator", "--json"]
        second = checks(doctor(*here, f"--state={state}"))
        assert second["name"][1].startswith("another coordinator is online at this broker")
        itself = checks(doctor(*here, f"--state={tmp_path / 'coordinator'}"))
        assert f"runs (process {coordinator.process.pid})" in itself["lock"][1]
        assert itself["session"][1].startswith("a message went and came back in")
        assert "name" not in itself
    finally:
        coordinator.kill()


@pytest.mark.slow
def test_an_agent_of_the_same_name_elsewhere_is_told(
    system_broker: str, state: Path, tmp_path: Path
) -> None:
    """The same name on a second machine; the agent that runs here is told from it by its lock."""
    who = [f"--broker={system_broker}", f"--root=names{os.getpid()}", "--host=desk"]
    agent = Program(
        "agent.service", [*who, f"--state={tmp_path / 'agent'}"], dict(os.environ), tmp_path / "log"
    )
    agent.start()
    try:
        there = checks(doctor(*who, f"--state={state}", "--json"))
        assert there["name"][0] == "warn"
        assert there["name"][1].startswith("another agent called 'desk' is online")
        here = checks(doctor(*who, f"--state={tmp_path / 'agent'}", "--json"))
        assert here["lock"][1].startswith("the agent of this host runs (process ")
        assert here["session"][0] == "ok"
        assert here["coordinator"][0] == "warn"
        assert "name" not in here
        assert agent.process.poll() is None
        assert "not connected" not in agent.said()
    finally:
        agent.kill()


def test_a_host_that_the_plan_names_and_nobody_knows_is_warned_of(
    system_broker: str, tmp_path: Path
) -> None:
    """By what the coordinator that runs here knows, else the ledger; where neither says, so."""
    plan = tmp_path / "plan.toml"
    plan.write_text(
        "schema_version = 1\n[[jobs]]\nmodel = 'gbt'\nmode = 'oracle'\nallowed_hosts = ['atic']\n"
    )
    root = f"doubt{os.getpid()}"
    where = [f"--broker={system_broker}", f"--root={root}", f"--state={tmp_path / 'c'}"]
    here = [*where, "--role=coordinator", f"--manifest={plan}", "--json"]
    nobody = "1 job; names of hosts were not checked: no host is known; "
    assert checks(doctor(*here))["manifest"][1].endswith(nobody)
    coordinator = Program(
        "coordinator.service", [*where, f"--manifest={plan}"], dict(os.environ), tmp_path / "log"
    )
    coordinator.start()
    agent = Program(
        "agent.service", [*where[:2], "--host=attic", f"--state={tmp_path / 'a'}"],
        dict(os.environ), tmp_path / "agent.log",
    )  # fmt: skip
    agent.start()
    try:
        doubt = "no host is called 'atic'; did you mean 'attic', or is it yet to come?"
        level, text = checks(doctor(*here))["manifest"]
        assert (level, doubt in text) == ("warn", True)
        by_its_word = checks(doctor(*(one for one in here if "manifest" not in one)))
        assert by_its_word["manifest"] == (level, text), "the plan of the one that runs"
        done = verb("drain", "attic", *where[:2])  # of which the ledger keeps a record
        assert done.returncode == 0, done.stderr
    finally:
        agent.kill()
        coordinator.kill()
    level, text = checks(doctor(*here))["manifest"]
    assert (level, doubt in text) == ("warn", True), "the ledger knows it"


def test_the_data_of_the_agent_that_runs_here_is_what_counts(
    system_broker: str, data: Path, tmp_path: Path
) -> None:
    """However it was told of it, and wherever the doctor is started; no data is no news then."""
    config = tmp_path / "agents.toml"
    config.write_text(f"[agent]\ndata = '{data}'\n")
    name = f"beside-{os.getpid()}"
    who = [f"--broker={system_broker}", f"--root=beside{os.getpid()}", f"--host={name}"]
    agent = Program(
        "agent.service", [*who, f"--state={tmp_path / 'agent'}", f"--config={config}"],
        dict(os.environ), tmp_path / "log",
    )  # fmt: skip
    agent.start()
    try:
        its = f"the agent that runs here (process {agent.process.pid}) has it"
        for state in ("agent", "another"):
            level, text = checks(doctor(*who, f"--state={tmp_path / state}", "--json"))["data"]
            assert level == "ok"
            assert text.startswith(f"{data}: ")
            assert its in text
        other = [f"--state={tmp_path / 'agent'}", f"--data={tmp_path}", "--json"]
        named = checks(doctor(*who, *other))
        assert named["data"][0] == "fail", "what is named is what is asked about"
        agent.stop()
        agent.arguments.pop()
        agent.start()
        level, text = checks(doctor(*who, f"--state={tmp_path / 'agent'}", "--json"))["data"]
        assert (level, "was told of no prepared data" in text) == ("warn", True)
    finally:
        agent.kill()


@pytest.fixture
def persons_home(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine where `fleet init` was run: a person's identity, no host's."""
    home = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "s")}
    done = verb("init", "--broker", "127.0.0.1", "--operator", "alice", environment=home)
    assert done.returncode == 0, done.stderr
    return home


def test_a_persons_machine_is_checked_as_that_person(
    persons_home: dict[str, str], tmp_path: Path
) -> None:
    """The identity that is there, the broker, the coordinator; nothing that only an agent needs."""
    environment = {**os.environ, **persons_home}
    home = Path(persons_home["XDG_CONFIG_HOME"]) / "fleet"
    served = Program(
        "broker.embedded", ["--listen", "127.0.0.1:0", f"--identity={home / 'broker'}"],
        environment, tmp_path / "broker.log",
    )  # fmt: skip
    url = f"--broker=mqtts://127.0.0.1:{served.start()['port']}"
    coordinator = Program(
        "coordinator.service", [url, f"--state={tmp_path / 'c'}"], environment, tmp_path / "c.log"
    )
    try:
        done = doctor(url, **persons_home)
        assert done.returncode == 0, done.stdout
        assert "ok    role         operator, since operator:alice is here" in done.stdout
        assert "ok    identity     operator:alice, for " in done.stdout
        assert "ok    session      the broker lets operator:alice in" in done.stdout
        assert "warn  coordinator  the broker mqtts://127.0.0.1:" in done.stdout
        assert "trainers" not in done.stdout
        assert done.stdout.splitlines()[-1] == "1 warning: coordinator."
        coordinator.start()
        done = doctor(url, "--json", **persons_home)
        assert checks(done)["coordinator"][0] == "ok"
        assert checks(done)["clock"][0] == "ok", "it is the coordinator's"
        told = json.loads(done.stdout)
        assert (told["role"], told["ok"], "coordinator" in told["summary"]) == (
            "operator", True, False
        )  # fmt: skip
    finally:
        if hasattr(coordinator, "process"):
            coordinator.kill()
        served.kill()


def test_who_says_what_the_machine_is_to_be_is_taken_at_their_word(
    persons_home: dict[str, str], tmp_path: Path
) -> None:
    """By the role, or by an option that only an agent has; a broker that is away is a problem."""
    done = doctor("--broker=mqtts://127.0.0.1:1", **persons_home)
    assert done.returncode == 1
    assert "fail  broker       127.0.0.1:1: Connection refused" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 problem: broker")
    for said in ("--role=agent", f"--state={tmp_path / 'state'}"):
        done = doctor("--broker=mqtts://127.0.0.1:1", said, **persons_home)
        assert "fail  identity     mqtts://127.0.0.1:1: no identity of a host in " in done.stdout
