"""Which broker a program takes when nobody says, and as whom."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from agent.service import snooze
from broker.client.access import AGENT, COORDINATOR, PEOPLE, open_access
from broker.errors import ConfigError
from broker.pki.ca import Authority
from broker.pki.certificates import key_pem, new_key
from broker.pki.identity_file import Bundle, install
from broker.system.address import text_of
from broker.system.settings import BrokerSettings, config_home, state_home
from coordinator.client.client import OperatorClient
from coordinator.client.contact import Unreachable


@pytest.fixture
def identities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without any identity; where they go."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return config_home() / "identities"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "ca", time.time())


def _join(authority: Authority, folder: Path, name: str, broker: str) -> Path:
    key = new_key()
    certificate = authority.issue(key.public_key(), name, time.time())
    install(Bundle(name, broker, authority.pem, certificate, key_pem(key)), folder)
    return folder


def test_who_has_joined_need_not_name_the_broker(authority: Authority, identities: Path) -> None:
    _join(authority, identities / "attic", "attic", "mqtts://pi.lan:8883")
    access = open_access(BrokerSettings(), AGENT, time.time())
    assert (text_of(access.addresses), access.user) == ("mqtts://pi.lan:8883", "attic")
    said = open_access(BrokerSettings(url="mqtts://other"), AGENT, time.time())
    assert text_of(said.addresses) == "mqtts://other:8883"
    here = open_access(BrokerSettings(url="mqtt://127.0.0.1"), AGENT, time.time())
    assert here.identity is None


def test_a_folder_that_is_named_says_where_its_broker_is(
    authority: Authority, identities: Path, tmp_path: Path
) -> None:
    assert not identities.exists()
    with pytest.raises(ConfigError, match="cannot be read"):
        open_access(BrokerSettings(identity=identities), PEOPLE, time.time())
    folder = _join(authority, tmp_path / "else", "operator:alice", "mqtts://pi.lan:9000")
    named = open_access(BrokerSettings(identity=folder), PEOPLE, time.time())
    assert text_of(named.addresses) == "mqtts://pi.lan:9000"
    _join(authority, identities / "operator@bob", "operator:bob", "mqtts://pi.lan:9000")
    assert open_access(BrokerSettings(), AGENT, time.time()).addresses[0].is_loopback()


@pytest.mark.parametrize("text", ["mqtt://pi.lan", "evil; rm -rf /", "", "\0"])
def test_an_address_that_is_none_is_told_with_its_file(
    authority: Authority, identities: Path, text: str
) -> None:
    folder = _join(authority, identities / "attic", "attic", "mqtts://pi.lan")
    (folder / "broker.url").write_text(text)
    with pytest.raises(ConfigError, match=r"broker\.url"):
        open_access(BrokerSettings(), AGENT, time.time())


def test_what_is_missing_is_to_be_had_where_it_is_made(identities: Path) -> None:
    settings = BrokerSettings(url="mqtts://pi.lan")
    with pytest.raises(ConfigError, match=r"mqtts://pi\.lan:8883: .*`fleet init` makes one"):
        open_access(settings, COORDINATOR, time.time())
    with pytest.raises(ConfigError, match="get one with `fleet enroll`"):
        open_access(settings, AGENT, time.time())


def test_the_brokers_own_folder_is_no_identity_and_that_is_said(identities: Path) -> None:
    folder = identities.parent / "broker"
    folder.mkdir(parents=True)
    (folder / "broker.crt").write_text("a broker's")
    settings = BrokerSettings(url="mqtts://pi.lan", identity=folder)
    with pytest.raises(
        ConfigError, match=r"that is the broker's folder; name one of .*identities/"
    ):
        open_access(settings, COORDINATOR, time.time())


def test_the_owner_finds_the_agent_that_its_certificate_names(
    authority: Authority, identities: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    _join(authority, identities / "desk-7", "desk-7", "mqtts://pi.lan:8883")
    state = state_home() / "agent-desk-7"
    state.mkdir(parents=True)
    assert snooze.main(["--time", "3h"]) == 0
    assert (state / "snooze").exists()
    assert snooze.main(["--end"]) == 0


def test_a_wrong_identity_is_told_of_to_the_owner(
    authority: Authority, identities: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _join(authority, identities / "operator@anna", "operator:anna", "mqtts://pi.lan:8883")
    for folder, said in (
        (tmp_path / "none", f"{tmp_path / 'none'}"),
        (identities / "operator@anna", "this is the identity of 'operator:anna', and that of"),
    ):
        assert snooze.main(["--time", "3h", "--identity", str(folder)]) == 2
        told = capsys.readouterr().err
        assert said in told
        assert "no agent has kept its state" not in told


def test_an_observer_beside_an_operator_changes_nothing(
    authority: Authority, identities: Path
) -> None:
    url = "mqtts://pi.lan:8883"
    for name in ("operator:root", "observer:ann"):
        _join(authority, identities / name.replace(":", "@"), name, url)
    access = open_access(BrokerSettings(), PEOPLE, time.time())
    assert (access.user, text_of(access.addresses)) == ("operator:root", url)
    _join(authority, identities / "operator@bob", "operator:bob", url)
    with pytest.raises(ConfigError, match="several identities"):
        open_access(BrokerSettings(url=url), PEOPLE, time.time())


def test_a_person_on_a_hosts_machine_is_told_whose_identity_is_there(
    authority: Authority, identities: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    unsaid = BrokerSettings.model_construct(set(), url=f"mqtt://127.0.0.1:{port}")
    with pytest.raises(Unreachable, match="fleet up"):
        OperatorClient(unsaid, 5.0).__enter__()
    _join(authority, identities / "gaming-pc", "gaming-pc", "mqtts://pi.lan:8883")
    with pytest.raises(
        ConfigError, match=r"host \(gaming-pc\) alone.*`fleet enroll operator:NAME`"
    ):
        OperatorClient(unsaid, 5.0).__enter__()
    said = BrokerSettings(url=f"mqtt://127.0.0.1:{port}")
    with pytest.raises(Unreachable, match="--broker names another"):
        OperatorClient(said, 5.0).__enter__()
