"""What is no TOML is told alike of a manifest and of settings: FILE:LINE: WHAT."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.service.settings import AgentSettings
from broker.errors import ConfigError
from broker.system.settings import BrokerSettings
from broker.system.trainer_settings import load_trainers
from coordinator.manifest.manifest_file import load_manifest
from coordinator.service.settings import CoordinatorSettings

LOADERS: dict[str, Callable[[Path], object]] = {
    "manifest": lambda path: load_manifest(path, {}),
    "broker": lambda path: BrokerSettings.load(path, None, {}),
    "agent": lambda path: AgentSettings.load(path, None, {}),
    "coordinator": lambda path: CoordinatorSettings.load(path, None, {}),
    "trainers": lambda path: load_trainers(path, (), {}, programs=False),
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"a = 1\n\nb = x\n", ":3: is not TOML: Invalid value (column 5)"),
        (b"a = 1\nb = 2\r\na = 3\n", ":3: is not TOML: Cannot overwrite a value (column 6)"),
        (b"a = 1\nb = [1,\n2\n\n", ":3: is not TOML: Unclosed array (at the end)"),
        (b"a = 1\nb = 'caf\xe9'\n", ":2: is not UTF-8 text; save it as UTF-8"),
        (b"a = " + b"9" * 5000, ": is not TOML: Exceeds the limit"),
        (b"a = " + b"[" * 9999, ": is not TOML: maximum recursion depth exceeded"),
    ],
    ids=["value", "twice", "open", "bytes", "digits", "depth"],
)
def test_a_fault_is_told_with_its_file_and_line(
    tmp_path: Path, loader: str, data: bytes, told: str
) -> None:
    path = tmp_path / "fleet.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigError) as refusal:
        LOADERS[loader](path)
    assert str(refusal.value).startswith(f"{path}{told}")
    assert "\n" not in str(refusal.value)


def test_an_editor_may_mark_the_order_of_bytes(tmp_path: Path) -> None:
    """Windows' own does; settings are taken with it, as manifests are."""
    path = tmp_path / "fleet.toml"
    path.write_bytes(b'\xef\xbb\xbf[broker]\nurl = "mqtts://pi"\n')
    assert BrokerSettings.load(path, None, {}).url == "mqtts://pi"
