"""A certificate is taken back: what is said and recorded, and what becomes of the host."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.service import status
from broker.client.access import PEOPLE, open_access
from broker.client.link import Link, LinkSettings
from broker.deploy import Ports
from broker.protocol.events import Connected, LinkEvent
from broker.system.settings import BrokerSettings
from tests.harness.brokers import BrokerProcess, free_port
from tests.harness.fleet import Program, wait_until
from tests.harness.secured_brokers import find_program
from tests.system.test_identity import Owner


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    """Whoever sets the fleet up; has done so."""
    made = Owner(tmp_path / "owner")
    made.done("init", "--broker", "127.0.0.1", "--operator", "alice")
    return made


@pytest.fixture
def start(tmp_path: Path, owner: Owner) -> Iterator[Callable[..., dict[str, Any]]]:
    """`start(module, *arguments, who=...)`: one of the programs; what it says when it is ready."""
    made: list[Program] = []

    def begin(module: str, *arguments: str, who: Owner = owner) -> dict[str, Any]:
        log = tmp_path / f"{len(made)}.log"
        made.append(Program(module, list(arguments), who.environment, log))
        return made[-1].start()

    yield begin
    for one in reversed(made):
        one.kill()


def rows(owner: Owner, verb: str, *where: str) -> list[dict[str, Any]]:
    """What a command shows, as JSON."""
    found: list[dict[str, Any]] = json.loads(owner.done(verb, "--json", *where))
    return found


def test_what_is_done_with_the_ca_is_recorded_and_a_revoked_host_is_out(
    owner: Owner, start: Callable[..., dict[str, Any]], data: Path, tmp_path: Path
) -> None:
    """Told over the wire at once, or by the next command; read by a coordinator that has the CA."""
    broker = owner.fleet / "broker"
    port = start("broker.embedded", "--listen", "127.0.0.1:0", "--identity", str(broker))["port"]
    url = f"mqtts://127.0.0.1:{port}"
    bundle = tmp_path / "pi.fleet"
    said = owner.run("enroll", "pi", "-o", str(bundle), "--broker", url)
    assert said.returncode == 0
    assert "not recorded at the coordinator yet: the broker" in said.stderr
    assert "no coordinator did" in said.stderr

    state = ("--state", str(tmp_path / "coordinator"))
    start("coordinator.service", "--broker", url, *state)
    host = Owner(tmp_path / "host")
    host.done("join", str(bundle))
    place = ("--state", str(tmp_path / "pi"), "--data", str(data))
    start("agent.service", "--broker", url, *place, who=host)
    wait_until(lambda: _presences(owner, url) == {"pi": "online"}, "the host is there")
    assert rows(owner, "events", "--broker", url) == []

    checks = host.run("doctor", "--role", "agent", "--broker", url, *place, "--json").stdout
    found = {one["check"]: one for one in json.loads(checks)["checks"]}
    assert found["session"]["level"] == "ok"
    assert found["session"]["text"].startswith("the agent that runs here has been connected since")
    assert found["coordinator"]["level"] == "skip"
    assert found["coordinator"]["text"] == "not asked: the agent that runs here uses this name"

    said = owner.run("revoke", "pi", "--broker", url)
    assert (said.returncode, said.stderr) == (0, "")
    assert "the coordinator gives it nothing more; it held no job\n" in said.stdout
    assert "a job that pi runs" not in said.stdout, "it runs none"
    wait_until(lambda: _presences(owner, url) == {"pi": "revoked"}, "it is shown as revoked")
    told = rows(owner, "events", "--broker", url)
    assert [(row["who"], row["event"], row["host"]) for row in told] == [
        ("operator:alice", "init", None), ("operator:alice", "enroll", "pi"),
        ("operator:alice", "revoke", "pi"),
    ]  # fmt: skip
    assert "its certificate is in a file" in told[1]["why"]["text"]
    table = owner.done("workers", "--broker", url)
    assert "pi: its certificate was revoked by operator:alice" in table.replace("\n", " ")

    assert "pi is revoked already" in owner.done("revoke", "pi", "--broker", url)
    assert "has no certificate that holds" in owner.refused("revoke", "nobody", "--broker", url)
    assert len(rows(owner, "events", "--broker", url)) == 3

    words = " ".join(table.split())
    assert "`fleet enroll pi --replace` lets it in again" in words
    wait_until(lambda: "is it revoked" in str(status.read(tmp_path / "pi")), "it is refused")
    checks = host.run("doctor", "--role", "agent", "--broker", url, *place, "--json").stdout
    found = {one["check"]: one for one in json.loads(checks)["checks"]}
    assert found["session"]["level"] == "fail"
    assert "`fleet enroll pi --replace` on the CA's machine" in found["session"]["remedy"]
    assert found["coordinator"]["level"] == "skip"
    bundle.unlink()
    owner.done("enroll", "pi", "--replace", "-o", str(bundle), "--broker", url)
    said = " ".join(host.done("join", str(bundle), "--replace").split())
    assert re.search(r"agent that runs here \(process \d+\) \w+ [a-z ]*with it by itself", said)
    wait_until(lambda: _presences(owner, url) == {"pi": "online"}, "the host is there again")


def test_a_coordinator_that_has_the_ca_needs_nobody_to_tell_it(
    owner: Owner, start: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """What was done while it was away, and what is done while nobody can reach it."""
    owner.run("enroll", "pi", "-o", str(tmp_path / "pi.fleet"))
    broker = owner.fleet / "broker"
    port = start("broker.embedded", "--listen", "127.0.0.1:0", "--identity", str(broker))["port"]
    url = f"mqtts://127.0.0.1:{port}"
    ca = ("--ca", str(owner.fleet / "ca"))
    start("coordinator.service", "--broker", url, "--state", str(tmp_path / "c"), *ca)

    def told() -> list[str]:
        return [row["event"] for row in rows(owner, "events", "--broker", url)]

    assert told() == ["init", "enroll"]
    said = owner.run("revoke", "pi", FLEET_BROKER="mqtts://127.0.0.1:1")
    assert said.returncode == 0
    assert "revoked pi" in said.stdout
    outlook = "pi runs now is stopped there if its agent is reached; else it goes on"
    assert outlook in " ".join(said.stdout.split()), "nobody has said what it holds"
    assert "not recorded at the coordinator yet: the broker is not reachable" in said.stderr
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
    owner: Owner, ports: Ports, start: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """A person's programs run side by side; a host is looked for where hosts connect."""
    start("coordinator.service", "--state", str(tmp_path / "coordinator"))
    bundle = tmp_path / "pi.fleet"
    owner.done("enroll", "pi", "-o", str(bundle))
    host = Owner(tmp_path / "host")
    host.done("join", str(bundle))
    start("agent.service", "--state", str(tmp_path / "pi"), who=host)
    wait_until(lambda: [row["presence"] for row in rows(owner, "workers")] == ["online"], "it is")

    identity = owner.fleet / "identities" / "operator@alice"
    access = open_access(BrokerSettings(identity=identity), PEOPLE, time.time())
    events: list[LinkEvent] = []
    settings = LinkSettings(access.addresses, "fleet-dashboard", [], tls=access.tls)
    dashboard = Link(settings, lambda *came: events.extend(came))
    dashboard.start()
    try:
        wait_until(lambda: bool(events), "it is connected")
        owner.done("status")
        owner.done("status")
        assert [type(one) for one in events] == [Connected]
    finally:
        dashboard.stop()

    let_in = f"pi is still let in by mqtts://127.0.0.1:{ports.hosts}"
    people = f"mqtts://127.0.0.1:{ports.people}"
    assert let_in in owner.refused("revoke", "pi")
    assert let_in in owner.refused("revoke", "pi", "--broker", people)
    (owner.fleet / "ca" / "ports.json").unlink()  # the files were made on another machine
    said = " ".join(owner.refused("revoke", "pi", "--broker", people).split())
    assert f"pi is still connected, and not at {people}" in said
