"""From `fleet init` to a host at work over TLS, with the commands that people type."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from broker.pki import certificates as certs
from broker.pki.ca import Authority, is_node
from broker.pki.identity import DAY_S
from tests.harness.brokers import BrokerProcess
from tests.harness.fleet import wait_until
from tests.harness.owner import Owner
from tests.harness.secure import House, mosquitto_tls

DEADLINE_S = 60.0


@pytest.fixture
def broker(owner: Owner) -> Iterator[BrokerProcess]:
    """A mosquitto with what `fleet init` has made."""
    owner.done("init", "--broker", "127.0.0.1", "--operator", "alice")
    made = mosquitto_tls(House(owner.fleet, Authority(owner.fleet / "ca")))
    made.start()
    yield made
    made.end(signal.SIGKILL)


def _tree(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_mode)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_init_makes_everything_once(owner: Owner) -> None:
    said = owner.done("init", "--broker", "pi.lan", "--broker", "192.0.2.7", "--operator", "alice")
    assert "fleet enroll HOST" in said
    for name in ("coordinator", "operator@alice"):
        written = (owner.fleet / "identities" / name / "broker.url").read_text()
        assert written == "mqtts://pi.lan:8883\n"
    made = {str(path.relative_to(owner.fleet)) for path in owner.fleet.glob("*/*")}
    assert {one for one in made if not one.startswith("ca/")} == {
        "broker/ca.crt", "broker/broker.crt", "broker/broker.key", "broker/crl.pem",
        "identities/coordinator", "identities/operator@alice",
    }  # fmt: skip
    before = _tree(owner.fleet)
    for key in owner.fleet.rglob("*.key"):
        assert key.stat().st_mode & 0o777 == 0o600, key
    assert "nothing was changed" in owner.done("init")
    assert "nothing was changed" in owner.done("init", "--broker", "PI.lan")
    assert _tree(owner.fleet) == before
    said = owner.done("init", "--broker", "attic.lan", "--operator", "bob")
    assert "pi.lan, 192.0.2.7, localhost, 127.0.0.1, ::1, attic.lan" in said
    kept = _tree(owner.fleet)
    for name in ("ca/ca.key", "ca/ca.crt", "identities/operator@alice/client.key"):
        assert kept[str(owner.fleet / name)] == before[str(owner.fleet / name)]


def test_a_clusters_certificate_does_for_its_nodes(owner: Owner) -> None:
    path = owner.fleet / "broker" / "broker.crt"
    owner.done("init", "--broker", "a.lan", "--operator", "alice")
    assert not is_node(certs.read_certificate(path))
    assert "the broker's certificate" in owner.done("init", "--cluster")
    assert is_node(certs.read_certificate(path))
    assert "nothing was changed" in owner.done("init", "--cluster")
    assert "the broker's certificate" in owner.done("init", "--broker", "b.lan")
    assert is_node(certs.read_certificate(path))


def test_a_host_works_over_tls_is_revoked_and_comes_back(
    owner: Owner, broker: BrokerProcess, program: Any, data: Path, tmp_path: Path
) -> None:
    url, bundle = broker.url, tmp_path / "attic.fleet"
    owner.done("enroll", "attic", "-o", str(bundle), "--broker", url)
    assert bundle.stat().st_mode & 0o777 == 0o600
    host = Owner(tmp_path / "host")
    host.done("join", str(bundle))
    state = str(tmp_path / "state")
    program(owner, "coordinator.service", "--broker", url, "--state", state)
    agent = program(
        host, "agent.service", "--state", state + "-a", "--data", str(data)
    )  # which finds the broker by its identity
    assert _presence(owner, url) == "online"
    log = (owner.fleet / "mosquitto.log").read_text()
    for client, user in (
        ("coordinator", "coordinator"), ("attic", "attic"), (r"cli-\w+", "operator:alice")
    ):  # fmt: skip
        assert re.search(rf"as fleet-fleet/{client} \(p2, c1, k20, u'{user}'\)", log)

    assert "give that broker the new list" in owner.refused("revoke", "attic", "--broker", url)
    assert broker.process is not None
    broker.process.send_signal(signal.SIGHUP)
    said = owner.done("revoke", "attic", "--broker", url)
    assert "attic is revoked already" in said
    assert f"attic has no connection to {url}" in said
    wait_until(lambda: "is it revoked, ended, or of another CA?" in agent.said(), "it is told why")
    session = _session(host, state + "-a")
    advice = "`fleet enroll attic --replace` on the CA's machine lets it in again"
    assert (session["level"], advice in session["remedy"]) == ("fail", True)
    assert advice in agent.said()

    again = str(tmp_path / "again.fleet")
    said = owner.done("enroll", "attic", "--replace", "-o", again, "--broker", url)
    assert "join again.fleet --replace" in said
    said = " ".join(host.done("join", again, "--replace").split())
    assert f"the agent that runs here (process {agent.process.pid})" in said
    assert "next:" not in said
    wait_until(lambda: _presence(owner, url) == "online", "the host is there again")
    assert _session(host, state + "-a")["level"] == "ok"
    told = json.loads(host.done("join", again, "--json"))
    assert (told["made"], told["next"]) == (False, "")


def _session(host: Owner, state: str) -> dict[str, str]:
    checks = json.loads(host.run("doctor", "--state", state, "--json").stdout)["checks"]
    (session,) = [one for one in checks if one["check"] == "session"]
    return dict(session)


def _presence(owner: Owner, url: str) -> str:
    (row,) = json.loads(owner.done("workers", "--json", "--broker", url))
    return str(row["presence"])


PROGRAMS = {
    "agent": ("agent", "--state", "{tmp}/a"),
    "coordinator": ("coordinator", "--state", "{tmp}/c"),
    "status": ("status",),
}


@pytest.mark.parametrize("who", PROGRAMS)
def test_beyond_this_machine_nobody_goes_without_tls(
    owner: Owner, tmp_path: Path, who: str
) -> None:
    arguments = [one.replace("{tmp}", str(tmp_path)) for one in PROGRAMS[who]]
    said = owner.refused(*arguments, "--broker", "mqtt://192.0.2.1:1")
    words = ("without TLS", "mqtts://192.0.2.1", "`fleet init`", "`fleet enroll`", "--plain")
    assert [word for word in words if word not in said] == []
    assert len(said.splitlines()) == 1
    assert "`fleet join`" in owner.refused(*arguments, "--broker", "mqtts://192.0.2.1")


def test_where_the_network_is_trusted_it_may_be_said(owner: Owner) -> None:
    url, timeout = "mqtt://192.0.2.1:1", ("--timeout", "0.2")
    config = owner.home / "fleet.toml"
    owner.home.mkdir()
    config.write_text(f'[broker]\nurl = "{url}"\nplain = true\n')
    ways: list[tuple[tuple[str, ...], dict[str, str]]] = [
        (("status", "--plain", "--broker", url), {}),
        (("--plain", "--broker", url, "status"), {}),
        (("status", "--broker", url), {"FLEET_PLAIN": "1"}),
        (("status", "--config", str(config)), {}),
    ]
    for arguments, more in ways:
        ran = owner.run(*arguments, *timeout, **more)
        assert ran.returncode == 3, ran.stderr
        assert "the broker is not reachable" in ran.stderr


def test_an_identity_is_for_whom_it_is(owner: Owner, tmp_path: Path) -> None:
    owner.done("init", "--broker", "127.0.0.1", "--operator", "alice")
    bundle = tmp_path / "pi.fleet"
    owner.done("enroll", "pi", "-o", str(bundle))
    owner.done("join", str(bundle))
    folders, state = owner.fleet / "identities", ("--state", str(tmp_path / "s"))
    for words, told in (
        (("coordinator", *state, "--identity", str(folders / "pi")), "of 'pi', and the c"),
        (
            ("agent", *state, "--identity", str(folders / "coordinator")),
            "of 'coordinator', and",
        ),
        (("agent", *state, "--host", "gpu"), "this is the identity of 'pi', not of 'gpu'"),
        (("status", "--identity", str(folders / "pi")), "a person, such as operator:alice"),
        (("status", "--identity", str(tmp_path / "gone")), "client.crt: cannot be read"),
    ):
        assert told in owner.refused(*words, "--broker", "mqtts://127.0.0.1:1")
    owner.done("init", "--operator", "bob")
    said = owner.refused("status", "--broker", "mqtts://127.0.0.1:1")
    assert "several identities (operator@alice, operator@bob); choose by --identity" in said


@pytest.mark.slow
def test_a_certificate_that_nears_its_end_is_renewed_and_used(
    owner: Owner, program: Any, data: Path, tmp_path: Path
) -> None:
    house = House.make(owner.fleet)
    house.identity("coordinator")
    house.identity("operator:alice")
    folder = house.identity("pi", at_s=time.time() - 20 * DAY_S, days=25)
    broker = mosquitto_tls(house)
    broker.start()
    try:
        at = ("--broker", broker.url, "--state")
        old = (folder / "client.crt").read_bytes()
        key = (folder / "client.key").read_bytes()
        one = program(owner, "coordinator.service", *at, str(tmp_path / "c"))
        agent = program(owner, "agent.service", *at, str(tmp_path / "a"), "--data", str(data))
        said = owner.done("workers", "--broker", broker.url)
        assert re.search(
            r"^pi: its certificate ends on \d{4}-\d\d-\d\d, in [45]\b.*d$", said, re.MULTILINE
        )
        assert (folder / "client.crt").read_bytes() == old  # this coordinator has no CA
        one.stop()
        agent.stop()
        ca = ("--ca", str(owner.fleet / "ca"))
        program(owner, "coordinator.service", *at, str(tmp_path / "c"), *ca)
        agent = program(owner, "agent.service", *at, str(tmp_path / "a"), "--data", str(data))
        wait_until(lambda: "the certificate was renewed" in agent.said(), "it is renewed")
        assert (folder / "client.crt").read_bytes() != old
        assert (folder / "client.key").read_bytes() == key
        (row,) = json.loads(owner.done("workers", "--broker", broker.url, "--json"))
        ends = datetime.fromisoformat(row["capability"]["certificate_expires_at"])
        assert (ends - datetime.now(UTC)).days in {364, 365}
        assert "its certificate" not in owner.done("workers", "--broker", broker.url)
        broker.end()
        broker.start()
        wait_until(lambda: agent.said().count("connected to the broker as pi") == 2, "it is back")
    finally:
        broker.end(signal.SIGKILL)
