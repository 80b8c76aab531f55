"""A host fetches its certificate with a token, and it is taken back: what becomes of the host."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.service import status
from broker.deploy import Ports
from tests.harness.brokers import BrokerProcess, find_program, free_port
from tests.harness.fleet import Program, wait_until
from tests.harness.owner import DEADLINE_S, Owner


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    """Whoever sets the fleet up; has done so."""
    made = Owner(tmp_path / "owner")
    made.done("init", "--broker", "127.0.0.1", "--operator", "alice")
    return made


@pytest.mark.parametrize("typed", [False, True], ids=["in the line", "typed"])
def test_a_host_fetches_its_certificate_with_a_token(
    owner: Owner, tmp_path: Path, *, typed: bool
) -> None:
    waiting, line = owner.enroll("gpu")
    host = Owner(tmp_path / "gpu")
    where, token = line[1:]
    if typed:
        host.done("join", where, typed=token + "\n")
    else:
        host.done("join", where, token)
    folder = host.fleet / "identities" / "gpu"
    assert (folder / "broker.url").read_text() == "mqtts://127.0.0.1:8883\n"
    assert (folder / "client.key").stat().st_mode & 0o777 == 0o600
    assert waiting.wait(DEADLINE_S) == 0
    assert len(" ".join(line)) < 100
    assert "cannot be reached" in host.refused("join", where, token)
    assert "gpu has a certificate until" in owner.refused("enroll", "gpu")
    assert "up to a day" in owner.refused("enroll", "x", "--address", "127.0.0.1:0", "--for", "2d")


def test_a_host_that_joins_again_finds_out_before_its_token_is_used(
    owner: Owner, tmp_path: Path
) -> None:
    host, bundle = Owner(tmp_path / "host"), str(tmp_path / "gpu.fleet")
    owner.done("enroll", "gpu", "-o", bundle)
    host.done("join", bundle)
    owner.run("revoke", "gpu")
    waiting, line = owner.enroll("gpu")
    assert line.pop() == "--replace", "gpu had one before"
    said = host.refused(*line)
    assert f"{host.fleet / 'identities' / 'gpu'}: another identity is there" in said
    (tmp_path / "file").write_text("x")
    wrong = host.refused(*line, "-o", str(tmp_path / "file" / "gpu"))
    assert all("the token holds on" in one for one in (said, wrong))
    assert waiting.poll() is None
    host.done(*line, "--replace")
    assert waiting.wait(DEADLINE_S) == 0


def test_a_certificate_that_is_lost_on_the_last_step_says_how_to_get_another(
    owner: Owner, tmp_path: Path
) -> None:
    waiting, line = owner.enroll("gpu")
    (tmp_path / "there" / "client.crt").mkdir(parents=True)
    said = Owner(tmp_path / "host").refused(*line, "--replace", "-o", str(tmp_path / "there"))
    assert "run `fleet enroll gpu --replace`" in said
    assert waiting.wait(DEADLINE_S) == 0


def rows(owner: Owner, verb: str, *where: str) -> list[dict[str, Any]]:
    """What a command shows, as JSON."""
    found: list[dict[str, Any]] = json.loads(owner.done(verb, "--json", *where))
    return found


@pytest.mark.words
@pytest.mark.smoke
def test_what_is_done_with_the_ca_is_recorded_and_a_revoked_host_is_out(
    owner: Owner, program: Callable[..., Program], tmp_path: Path
) -> None:
    broker = str(owner.fleet / "broker")
    served = program(owner, "broker.embedded", "--listen=127.0.0.1:0", "--identity", broker)
    url, bundle = f"mqtts://127.0.0.1:{served.ready['port']}", tmp_path / "pi.fleet"
    said = owner.run("enroll", "pi", "-o", str(bundle), "--broker", url)
    assert said.returncode == 0
    assert "not recorded at the coordinator yet: the broker" in said.stderr
    program(owner, "coordinator.service", "--broker", url, "--state", str(tmp_path / "coordinator"))
    host = Owner(tmp_path / "host")
    host.done("join", str(bundle))
    program(host, "agent.service", "--broker", url, "--state", str(tmp_path / "pi"))
    wait_until(lambda: _presences(owner, url) == {"pi": "online"}, "the host is there")
    assert rows(owner, "events", "--broker", url) == []

    said = owner.run("revoke", "pi", "--broker", url)
    assert (said.returncode, said.stderr) == (0, "")
    assert "it held no job" in said.stdout
    wait_until(lambda: _presences(owner, url) == {"pi": "revoked"}, "it is shown as revoked")
    told = rows(owner, "events", "--broker", url)
    assert [(row["who"], row["event"], row["host"]) for row in told] == [
        ("operator:alice", "init", None), ("operator:alice", "enroll", "pi"),
        ("operator:alice", "revoke", "pi"),
    ]  # fmt: skip
    words = " ".join(owner.done("workers", "--broker", url).split())
    assert "pi: its certificate was revoked by operator:alice" in words
    assert "`fleet enroll pi --replace`" in words
    wait_until(lambda: "is it revoked" in str(status.read(tmp_path / "pi")), "it is refused")
    assert "pi is revoked already" in owner.done("revoke", "pi", "--broker", url)
    assert "has no certificate" in owner.refused("revoke", "nobody", "--broker", url)
    assert len(rows(owner, "events", "--broker", url)) == 3


def test_a_coordinator_that_has_the_ca_needs_nobody_to_tell_it(
    owner: Owner, program: Callable[..., Program], tmp_path: Path
) -> None:
    """What was done while it was away, and what is done while nobody can reach it."""
    owner.run("enroll", "pi", "-o", str(tmp_path / "pi.fleet"))
    broker = str(owner.fleet / "broker")
    served = program(owner, "broker.embedded", "--listen=127.0.0.1:0", "--identity", broker)
    url = f"mqtts://127.0.0.1:{served.ready['port']}"
    ca = ("--ca", str(owner.fleet / "ca"))
    program(owner, "coordinator.service", "--broker", url, "--state", str(tmp_path / "c"), *ca)

    def told() -> list[str]:
        return [row["event"] for row in rows(owner, "events", "--broker", url)]

    assert told() == ["init", "enroll"]
    said = owner.run("revoke", "pi", FLEET_BROKER="mqtts://127.0.0.1:1")
    assert said.returncode == 0
    assert "revoked pi" in said.stdout
    assert "not recorded at the coordinator yet" in said.stderr
    wait_until(lambda: told() == ["init", "enroll", "revoke"], "the coordinator has read it")


def _presences(owner: Owner, url: str) -> dict[str, str]:
    found = rows(owner, "workers", "--broker", url)
    return {row["host"]: row["presence"] for row in found}


@pytest.fixture
def ports(owner: Owner, tmp_path: Path) -> Iterator[Ports]:
    """A mosquitto with the files that `fleet broker config` writes for this fleet; its ports."""
    program, made = find_program("mosquitto"), Ports(free_port(), free_port())
    files = tmp_path / "mosquitto"
    said = owner.done(
        "broker", "config", "mosquitto", "-o", str(files), "--port", str(made.hosts),
        "--people-port", str(made.people), "--certificates", str(owner.fleet / "broker"),
        "--data", str(tmp_path),
    )  # fmt: skip
    words = f"connect to port {made.hosts}, people's programs to {made.people}"
    assert words in " ".join(said.split())
    with (files / "mosquitto.conf").open("a") as conf:
        conf.write("user root\n")  # who may read the test's folder
    broker = BrokerProcess(
        lambda _: [program, "-c", str(files / "mosquitto.conf")], announces=False, port=made.hosts
    )
    broker.start()
    yield made
    broker.end()


@pytest.mark.slow
def test_mosquittos_two_ports_are_kept_apart_without_anybody_naming_them(
    owner: Owner, ports: Ports, program: Callable[..., Program], tmp_path: Path
) -> None:
    program(owner, "coordinator.service", "--state", str(tmp_path / "coordinator"))
    bundle = tmp_path / "pi.fleet"
    owner.done("enroll", "pi", "-o", str(bundle))
    host = Owner(tmp_path / "host")
    host.done("join", str(bundle))
    program(host, "agent.service", "--state", str(tmp_path / "pi"))
    wait_until(lambda: [row["presence"] for row in rows(owner, "workers")] == ["online"], "it is")

    let_in = f"pi is still let in by mqtts://127.0.0.1:{ports.hosts}"
    people = f"mqtts://127.0.0.1:{ports.people}"
    assert let_in in owner.refused("revoke", "pi")
    assert let_in in owner.refused("revoke", "pi", "--broker", people)
    (owner.fleet / "ca" / "ports.json").unlink()  # the files were made on another machine
    said = " ".join(owner.refused("revoke", "pi", "--broker", people).split())
    assert f"pi is still connected, and not at {people}" in said
