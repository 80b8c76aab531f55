"""Certificates on a real mosquitto that asks for them: who is let in, and who is not."""

from __future__ import annotations

import itertools
import signal
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client.link import LinkSettings
from broker.errors import ConfigError
from broker.pki import identity as ids
from broker.pki.ca import Authority
from broker.pki.identity import DAY_S, Identity, load_identity
from broker.protocol.link_events import Connected, Disconnected, Incoming, Outgoing
from broker.protocol.topics import Topics
from broker.system.address import parse_addresses
from tests.harness.brokers import BrokerProcess
from tests.harness.ear import Ear
from tests.harness.secure import House, mosquitto_tls
from tests.harness.waiting import wait_until


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House.make(tmp_path / "house")


@pytest.fixture
def broker(house: House) -> Iterator[BrokerProcess]:
    """A mosquitto with the house's certificates; where it is not installed, a skip."""
    made = mosquitto_tls(house)
    made.start()
    yield made
    made.end(signal.SIGKILL)


@pytest.fixture
def visit(broker: BrokerProcess) -> Iterator[Callable[..., Ear]]:
    """`visit(identity, name="", url="", wait_s=0.2)`: somebody connects; stopped at last."""
    made: list[Ear] = []

    def go(who: Path | Identity, name: str = "", url: str = "", wait_s: float = 0.2) -> Ear:
        known = who if isinstance(who, Identity) else load_identity(who, time.time())
        client_id = Topics("t").client_id(name or known.name)
        settings = LinkSettings(
            parse_addresses(url or broker.url), client_id, [("t/#", 1)],
            backoff_base_s=wait_s / 2, backoff_cap_s=wait_s, tls=known.context, mark=known.mark,
        )  # fmt: skip
        made.append(Ear(settings))
        made[-1].link.start()
        return made[-1]

    yield go
    for one in made:
        one.link.stop()


def test_a_certificate_of_the_ca_opens_the_door(house: House, visit: Any) -> None:
    who = load_identity(house.identity("pi"), time.time())
    assert isinstance(visit(who).event(), Connected)
    assert who.context().minimum_version is ssl.TLSVersion.TLSv1_2
    assert who.context().check_hostname
    assert who.context().verify_mode is ssl.CERT_REQUIRED


def test_a_certificate_that_ended_does_not(house: House, visit: Any) -> None:
    folder = house.identity("pi", at_s=time.time() - 9 * DAY_S, days=1)
    with pytest.raises(ConfigError, match=r"the certificate ended on \d{4}-.*`fleet enroll`"):
        load_identity(folder, time.time())
    why = visit(Identity(folder, "pi", 0, 0)).refused()
    assert "is it revoked, ended, or of another CA?" in why


def test_a_certificate_that_has_not_begun_is_told_of_the_clock(house: House) -> None:
    """A small machine without a clock of its own starts in the past."""
    folder = house.identity("pi")
    with pytest.raises(ConfigError, match="is this machine's clock right"):
        load_identity(folder, time.time() - 2 * DAY_S)


def test_a_revoked_certificate_does_not(house: House, broker: BrokerProcess, visit: Any) -> None:
    """Mosquitto takes the list on SIGHUP for new connections, and leaves present ones alone.

    After a restart nobody with it is let in. `fleet revoke` tells people so.
    """
    folder, other = house.identity("pi"), house.identity("gpu")
    present = visit(folder)
    assert isinstance(present.event(), Connected)
    house.revoke("pi")
    assert isinstance(visit(folder, "pi-early").event(), Connected)  # nobody has told mosquitto yet
    assert broker.process is not None
    broker.process.send_signal(signal.SIGHUP)
    names = (f"pi-{number}" for number in itertools.count())
    wait_until(lambda: isinstance(visit(folder, next(names)).event(), Disconnected), "it gets in")
    assert present.link.publish(Outgoing("t/x", b"still here", 1))
    message = present.event()
    assert isinstance(message, Incoming)
    assert message.payload == b"still here"
    broker.end()
    broker.start()
    assert "connection lost" in present.refused()

    def refused() -> str:
        why = present.refused()
        return "" if why.endswith("Connection refused") else why  # it was still starting

    assert "is it revoked" in wait_until(refused, "the broker does not start")
    assert isinstance(visit(other).event(), Connected)


def test_a_certificate_of_nobody_we_know_does_not(tmp_path: Path, house: House, visit: Any) -> None:
    other = House.make(tmp_path / "other")
    stranger = other.identity("pi")
    (stranger / "ca.crt").write_bytes(house.authority.pem)
    with pytest.raises(ConfigError, match="the certificate is not of this CA"):
        load_identity(stranger, time.time())
    assert "another CA" in visit(Identity(stranger, "pi", 0, 0)).refused()
    selfish = other.folder / "selfish"
    key = (other.folder / "ca" / "ca.key").read_bytes()
    ids.write_identity(selfish, house.authority.pem, other.authority.pem, key)
    assert "another CA" in visit(Identity(selfish, "pi", 0, 0)).refused()


def test_a_certificate_that_takes_the_place_of_a_refused_one_is_tried_at_once(
    tmp_path: Path, house: House, visit: Any
) -> None:
    other = House.make(tmp_path / "other")
    folder = other.identity("pi")
    (folder / "ca.crt").write_bytes(house.authority.pem)
    somebody = visit(Identity(folder, "pi", 0, 0), wait_s=600.0)
    assert "is it revoked" in somebody.refused()
    new = house.identity("pi")
    certificate, key = (new / name for name in ("client.crt", "client.key"))
    ids.write_identity(
        folder, house.authority.pem, certificate.read_bytes(), key.read_bytes()
    )  # fmt: skip
    assert isinstance(somebody.event(), Connected)


def test_a_broker_of_another_ca_is_not_believed(tmp_path: Path, house: House, visit: Any) -> None:
    other = House.make(tmp_path / "other")
    why = visit(load_identity(other.identity("pi"), time.time())).refused()
    assert "the broker's certificate does not hold" in why


def test_a_brokers_name_is_checked(
    tmp_path: Path, broker: BrokerProcess, visit: Any, house: House
) -> None:
    elsewhere = House.make(tmp_path / "elsewhere", ("pi.lan",))
    other = mosquitto_tls(elsewhere)
    other.start()
    try:
        why = visit(elsewhere.identity("pi"), url=other.url).refused()
    finally:
        other.end(signal.SIGKILL)
    assert "the broker's certificate does not hold" in why
    assert "`fleet init --broker 127.0.0.1` on the CA's machine" in why


def test_a_hosts_certificate_does_not_do_for_a_broker(tmp_path: Path, visit: Any) -> None:
    """Whoever takes a host over cannot play the broker to the others."""
    house = House.make(tmp_path / "h")
    host = house.identity("pi")
    for name, part in (("broker.crt", "client.crt"), ("broker.key", "client.key")):
        (house.broker / name).write_bytes((host / part).read_bytes())
    impostor = mosquitto_tls(house)
    impostor.start()
    try:
        why = visit(house.identity("gpu"), url=impostor.url).refused()
    finally:
        impostor.end(signal.SIGKILL)
    assert "the broker's certificate does not hold: unsuitable certificate purpose" in why


def test_the_brokers_certificate_does_not_do_for_a_client(house: House, visit: Any) -> None:
    """Whoever takes the broker's key cannot be the coordinator."""
    folder = house.folder / "identities" / "broker"
    parts = house.broker
    ids.write_identity(
        folder,
        house.authority.pem,
        (parts / "broker.crt").read_bytes(),
        (parts / "broker.key").read_bytes(),
    )
    with pytest.raises(ConfigError, match="is not a client's certificate"):
        load_identity(folder, time.time())
    assert "is it revoked" in visit(Identity(folder, "coordinator", 0, 0)).refused()


def test_a_renewed_certificate_is_used_at_the_next_connection(
    house: House, broker: BrokerProcess, visit: Any
) -> None:
    folder = house.identity("pi")
    one = visit(folder)
    assert isinstance(one.event(), Connected)
    house.identity("pi")  # which revokes the earlier one
    house.publish()
    broker.end()
    broker.start()
    while not isinstance(event := one.event(), Connected):
        assert "is it revoked" not in event.why, event


def test_a_key_that_others_may_read_is_refused(house: House) -> None:
    folder = house.identity("pi")
    (folder / "client.key").chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_identity(folder, time.time())


def test_a_key_of_another_certificate_is_told(house: House) -> None:
    pi, gpu = house.identity("pi"), house.identity("gpu")
    (pi / "client.key").write_bytes((gpu / "client.key").read_bytes())
    with pytest.raises(ConfigError, match="the key does not belong to the certificate"):
        load_identity(pi, time.time())
    (pi / "client.key").unlink()
    with pytest.raises(ConfigError, match=r"client\.key: cannot be read: No such file"):
        load_identity(pi, time.time())


def test_files_that_vanish_while_a_program_runs_are_told(
    house: House, broker: BrokerProcess, visit: Any
) -> None:
    folder = house.identity("pi")
    one = visit(folder)
    assert isinstance(one.event(), Connected)
    (folder / "client.crt").unlink()
    broker.end()
    assert isinstance(one.event(), Disconnected)
    assert f"the identity in {folder} cannot be used" in one.refused()


def test_authorities_do_not_make_a_second_one(house: House) -> None:
    with pytest.raises(ConfigError, match="there is a CA already"):
        Authority.create(house.folder / "ca", time.time())
