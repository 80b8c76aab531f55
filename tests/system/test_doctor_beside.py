"""`fleet doctor` beside programs that run: an agent, a coordinator, a person's broker."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.doctor import checked, checks, doctor
from tests.harness.fleet import Fleet, Program
from tests.harness.owner import Owner
from tests.harness.verbs import verb

Check = Callable[..., dict[str, tuple[str, str]]]


@pytest.fixture
def check(fleet: Fleet) -> Check:
    """`check(state, *arguments)`: what the doctor finds in a folder of the test's fleet."""
    where = (f"--broker={fleet.broker_url}", f"--root={fleet.root}")
    return lambda state, *more: checked(*where, f"--state={fleet.tmp / state}", *more)


@pytest.mark.smoke
def test_with_a_broker_and_a_coordinator_all_is_well(
    fleet: Fleet, check: Check, data: Path
) -> None:
    """No fault for an agent to be; a second coordinator is told of the first."""
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
    """The same name on a second machine; the agent that runs here is told from it by its lock."""
    agent = fleet.agent("desk")
    level, text = check("new", "--host=desk")["name"]
    assert (level, "another agent" in text) == ("warn", True)
    here = check("desk", "--host=desk")
    assert (here["session"][0], here["coordinator"][0]) == ("ok", "warn")
    assert "name" not in here
    assert agent.process.poll() is None
    assert "not connected" not in agent.said()


def test_a_host_that_the_plan_names_and_nobody_knows_is_warned_of(
    fleet: Fleet, check: Check, cli: Callable[..., object]
) -> None:
    """By what the coordinator that runs here knows, else the ledger; where neither says, so."""
    fleet.plan('model = "gbt"\nmode = "oracle"\nallowed_hosts = ["atic"]')
    plan = ("coordinator", "--role=coordinator", f"--manifest={fleet.manifest}")
    assert "no host is known" in check(*plan)["manifest"][1]
    coordinator, agent = fleet.coordinator(), fleet.agent("attic")
    level, text = check(*plan)["manifest"]
    assert (level, "did you mean 'attic'" in text) == ("warn", True)
    by_its_word = check(*plan[:2])
    assert by_its_word["manifest"] == (level, text), "the plan of the one that runs"
    cli("drain", "attic")  # of which the ledger keeps a record
    agent.kill()
    coordinator.kill()
    assert check(*plan)["manifest"] == (level, text), "the ledger knows it"


def test_the_data_of_the_agent_that_runs_here_is_what_counts(
    owner: Owner, program: Callable[..., Program], system_broker: str, data: Path, tmp_path: Path
) -> None:
    """However it was told of it, and wherever the doctor is started; no data is no news then."""
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
    """By the role, or by an option that only an agent has; a broker that is away is a problem."""
    nowhere = "--broker=mqtts://127.0.0.1:1"
    assert checked(nowhere, **persons_home)["broker"][0] == "fail"
    for said in ("--role=agent", f"--state={tmp_path / 'state'}"):
        level, text = checked(nowhere, said, **persons_home)["identity"]
        assert (level, "no identity of a host" in text) == ("fail", True)
