"""Settings: where they come from, which of them wins, and what an error tells its reader."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent.service import settings
from agent.service.settings import AgentSettings, default_host
from broker.errors import ConfigError
from broker.protocol.topics import is_host
from broker.system.settings import BrokerSettings, Settings, find_config
from broker.system.trainer_settings import load_trainers
from coordinator.service.settings import CoordinatorSettings


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a working folder without any configuration, whatever this machine has."""
    for name in ("home", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


@pytest.fixture
def config(tmp_path: Path) -> Any:
    """`config(text)`: a configuration file with that text."""

    def write(text: str) -> Path:
        path = tmp_path / "some.toml"
        path.write_text(text, "utf-8")
        return path

    return write


def test_what_is_said_nearest_wins(config: Any) -> None:
    file = config('[broker]\nurl = "mqtt://file"\ntopic_root = "file"\n')
    environment = {"FLEET_BROKER": "mqtt://environment"}
    overrides = {"url": "mqtt://line"}

    def url(*arguments: Any) -> str:
        return BrokerSettings.load(*arguments).url

    assert url(None, None, {}) == "mqtt://127.0.0.1:1883"
    assert url(file, None, {}) == "mqtt://file"
    assert url(file, None, environment) == "mqtt://environment"
    assert url(file, overrides, environment) == "mqtt://line"
    assert url(None, overrides, environment) == "mqtt://line"
    assert BrokerSettings.load(file, overrides, environment).topic_root == "file"


def test_every_fault_of_a_file_is_told_at_once(config: Any) -> None:
    file = config(
        '[broker]\nurl = "pi"\ntopic = "x"\n[agent]\nslots = 0\nhearbeat_s = 3\n'
        '[trainers.gbt]\ncommand = ["nope"]\n'
    )
    arguments = argparse.Namespace(config=file)
    with pytest.raises(ConfigError) as refusal:
        settings.load(arguments).whole()
    faults = refusal.value.faults
    assert all(fault.startswith(f"{file}: [") for fault in faults)
    for key in ("[broker] topic", "[broker] url", "[agent] slots", "[agent] hearbeat_s", "gbt"):
        assert any(key in fault for fault in faults), key
    file.write_text("no TOML", "utf-8")
    with pytest.raises(ConfigError) as refusal:
        settings.load(arguments).whole()
    assert len(refusal.value.faults) == 1, "one file, one fault"


def test_a_clusters_addresses_are_a_list_or_have_commas(config: Any) -> None:
    file = config('[broker]\nurl = ["mqtts://a", "mqtts://b:8884"]\n')
    joined = "mqtts://a,mqtts://b:8884"
    assert BrokerSettings.load(file, None, {}).url == joined
    assert BrokerSettings.load(None, None, {"FLEET_BROKER": joined}).url == joined
    with pytest.raises(ConfigError, match=r"\[broker\] url: must be a string"):
        BrokerSettings.load(config("[broker]\nurl = []"), None, {})
    with pytest.raises(ConfigError, match=r"\[broker\] url: the scheme is missing"):
        BrokerSettings.load(config('[broker]\nurl = ["mqtts://a", "b"]'), None, {})


def test_what_is_said_empty_is_not_said(config: Any) -> None:
    file = config('[broker]\nurl = "mqtt://file"\n')
    empty = {"FLEET_BROKER": "", "FLEET_TOPIC_ROOT": "", "FLEET_IDENTITY": "", "FLEET_PLAIN": ""}
    loaded = BrokerSettings.load(file, {"url": None, "topic_root": None}, empty)
    assert (loaded.url, loaded.topic_root) == ("mqtt://file", "fleet")
    assert find_config(None, {"FLEET_CONFIG": ""}) is None


@pytest.mark.posix  # ./fleet.toml is named on Windows
def test_the_configuration_file_is_looked_for_in_order(home: Path, tmp_path: Path) -> None:
    given, named = tmp_path / "given.toml", {"FLEET_CONFIG": str(tmp_path / "named.toml")}
    user = home / ".config" / "fleet" / "fleet.toml"
    user.parent.mkdir(parents=True)
    user.touch()
    assert find_config(None, {}) == user
    Path("fleet.toml").touch()
    assert find_config(None, {}) == Path("fleet.toml")
    assert find_config(None, named) == tmp_path / "named.toml"
    assert find_config(given, named) == given


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a file away"
)
@pytest.mark.parametrize(
    ("stranger", "modes", "told"),
    [
        ("fleet.toml", {}, "fleet.toml: belongs to nobody, and so is not obeyed; name it with"),
        (".", {}, "here: belongs to nobody"),
        ("", {"fleet.toml": 0o666}, "others may write to it (mode 0666)"),
        ("", {".": 0o777}, "others may put another file there (mode 0777)"),
        ("", {".": 0o1777}, None),
        ("", {"fleet.toml": 0o664, ".": 0o775}, None),  # by the user's own group
        ("", {}, None),
    ],
)  # fmt: skip
def test_a_strangers_file_in_the_working_folder_is_not_obeyed(
    tmp_path: Path, stranger: str, modes: dict[str, int], told: str | None
) -> None:
    """It may name commands; neither who wrote it nor who could do so may be somebody else."""
    file = Path("fleet.toml")
    file.write_text('[broker]\nurl = "mqtt://strange"\n')
    if stranger:
        shutil.chown(stranger, "nobody")
    for name, mode in modes.items():
        Path(name).chmod(mode)
    if told is None:
        assert BrokerSettings.load(None, None, {}).url == "mqtt://strange"
        return
    for load in (
        lambda: BrokerSettings.load(None, None, {}),
        lambda: load_trainers(None, (), {}, programs=False),
    ):
        with pytest.raises(ConfigError) as refusal:
            load()
        assert told in str(refusal.value)
        assert "--config fleet.toml" in str(refusal.value)
    assert BrokerSettings.load(file, None, {}).url == "mqtt://strange"
    named = {"FLEET_CONFIG": str(tmp_path / "here" / "fleet.toml")}
    assert BrokerSettings.load(None, None, named).url == "mqtt://strange"


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        (BrokerSettings, "[brocker]", "[brocker]: unknown section; did you mean 'broker'?"),
        (BrokerSettings, "[zzz]",
         "[zzz]: unknown section; known are: agent, broker, coordinator, homeassistant"),
        (BrokerSettings, "broker = 1", "broker: must be a section; write [broker]"),
        (BrokerSettings, "[broker]\nulr = 1",
         "[broker] ulr: unknown key; did you mean 'url'?"),
        (BrokerSettings, "[broker]\nurl = 1", "[broker] url: must be a string, not "),
        (BrokerSettings, '[broker]\nurl = "pi"', "[broker] url: the scheme is missing; write mqtts://pi"),
        (BrokerSettings, '[broker]\ntopic_root = "a b"', "[broker] topic_root: topic root 'a b':"),
        (CoordinatorSettings, "[coordinator]\nstale_after_s = nan",
         "[coordinator] stale_after_s: must be a finite number, not nan"),
        (CoordinatorSettings, "[coordinator]\nmanifest = 3",
         "[coordinator] manifest: input is not a valid path for "),
        (AgentSettings, '[agent]\nhost = "PI"', "[agent] host: 'PI' is no host's name: write it "),
        (AgentSettings, '[agent]\nhost = "operator:ann"', "a person is called so; a host is "),
        (AgentSettings, "[agent]\nheartbeat_s = 0.1",
         "[agent] heartbeat_s: must be at least 0.2, not 0.1"),
        (AgentSettings, "[agent]\nhost = pi", "some.toml:2: is not TOML: Invalid value (column 8)"),
    ],
)  # fmt: skip
def test_an_error_names_the_file_the_key_and_the_remedy(
    config: Any, kind: type[Settings], text: str, told: str
) -> None:
    file = config(text + "\n")
    with pytest.raises(ConfigError) as refusal:
        kind.load(file, None, {})
    assert str(refusal.value).startswith(f"{file}:")
    assert told in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_error_names_the_variable_or_the_option() -> None:
    with pytest.raises(ConfigError, match=r"^FLEET_HOST_ID: "):
        AgentSettings.load(None, None, {"FLEET_HOST_ID": "-"})
    with pytest.raises(ConfigError, match=r"^--slots: must be a whole number"):
        AgentSettings.load(None, {"slots": "two"}, {"FLEET_HOST_ID": "pi"})
    with pytest.raises(ConfigError, match=r"^--heartbeat: "):
        AgentSettings.load(None, {"heartbeat_s": -1.0}, {"FLEET_HOST_ID": "pi"})
    with pytest.raises(ConfigError, match=r"^FLEET_BROKER: "):
        BrokerSettings.load(None, None, {"FLEET_BROKER": "pi"})
    with pytest.raises(ConfigError, match=r"^--broker: "):
        BrokerSettings.load(None, {"url": "pi"}, {})
    with pytest.raises(ConfigError, match=r"^--root: "):
        BrokerSettings.load(None, {"topic_root": "#"}, {})


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.write_bytes(b"\xff"), lambda _: 0])
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "gone.toml"
    make(path)
    with pytest.raises(ConfigError, match=r"gone\.toml(: cannot be read: .*--config|:1: is not U)"):
        BrokerSettings.load(path, None, {})


def test_sections_of_the_others_are_let_be(config: Any) -> None:
    file = config('[agent]\nhost = "pi"\n[coordinator]\nmax_attempts = 7\n[broker]\n')
    assert AgentSettings.load(file, None, {}).host == "pi"
    assert CoordinatorSettings.load(file, None, {}).max_attempts == 7
    assert BrokerSettings.load(file, None, {}) == BrokerSettings()


def test_paths_may_start_at_home(config: Any, home: Path) -> None:
    file = config('[coordinator]\nstate = "~/state"\nmanifest = "plan.toml"\n')
    loaded = CoordinatorSettings.load(file, None, {})
    assert (loaded.state, loaded.manifest) == (home / "state", Path("plan.toml"))


def test_state_is_kept_under_the_users_state_folder(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = home / ".local" / "state" / "fleet"
    assert CoordinatorSettings.load(None, None, {}).state == state / "coordinator"
    assert AgentSettings.load(None, None, {"FLEET_HOST_ID": "pi"}).state == state / "agent-pi"
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "xdg"))
    assert AgentSettings.load(None, {"host": "b"}, {}).state == home / "xdg" / "fleet" / "agent-b"
    assert AgentSettings.load(None, {"host": "b", "state": home}, {}).state == home


@pytest.mark.parametrize(
    ("node", "host"),
    [
        ("Pi-4.example.org", "pi-4"), ("ANN'S laptop", "ann-s-laptop"), ("_x_", "x"),
        ("jobs", "host-jobs"), ("fleet-1", "host-fleet-1"), ("", "host"),
        ("日本", "host"), ("a" * 80, "a" * 63),
    ],
)  # fmt: skip
def test_a_machine_of_any_name_has_a_host_name(
    node: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "node", lambda: node)
    assert default_host() == host
    assert is_host(host)
