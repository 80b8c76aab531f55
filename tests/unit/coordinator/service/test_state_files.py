"""Small files in the state folder: the installation's id, the key of the receipts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from broker.errors import ConfigError
from broker.system.machine import new_id
from coordinator.service.state_files import INSTALLATION, RECEIPT_KEY, installation_id, load_key


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder that a coordinator has used."""
    installation_id(tmp_path / "state", "a machine", new_id)
    return tmp_path / "state"


def test_an_installation_keeps_its_id_and_a_copy_has_another(state: Path, tmp_path: Path) -> None:
    """Over restarts; on another machine, in another folder, or one in the place of the other."""
    first = installation_id(state, "a machine", new_id)
    assert installation_id(state, "a machine", new_id) == first
    shutil.copytree(state, tmp_path / "copy")
    ids = [first, installation_id(tmp_path / "copy", "a machine", new_id)]
    state.rename(tmp_path / "away")
    shutil.copytree(tmp_path / "away", state)
    ids += [installation_id(state, "a machine", new_id)]
    ids += [installation_id(state, "another machine", new_id)]
    assert len(set(ids)) == 4


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b'{"id": 1}', b"\xff\xfe"])
def test_a_damaged_id_is_replaced(state: Path, damaged: bytes) -> None:
    """It costs a wait of some seconds, no more."""
    first = installation_id(state, "a machine", new_id)
    (state / INSTALLATION).write_bytes(damaged)
    second = installation_id(state, "a machine", new_id)
    assert first != second == installation_id(state, "a machine", new_id)


@pytest.mark.posix  # modes are
def test_the_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    """Whoever has it could speak for any host."""
    key = load_key(tmp_path)
    assert load_key(tmp_path) == key
    assert len(key) == 32
    path = tmp_path / RECEIPT_KEY
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_key(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [lambda _: b"", lambda key: key[:-1], lambda key: key + b"\n", lambda key: bytes(len(key))],
    ids=["empty", "cut off", "longer", "zeros"],
)
def test_a_damaged_key_is_refused_and_left(tmp_path: Path, damage: Any) -> None:
    """Another one would have what hosts are at trained again; a copy may be at hand."""
    load_key(tmp_path)
    path = tmp_path / RECEIPT_KEY
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    with pytest.raises(ConfigError, match="is damaged; put a copy of it back") as refusal:
        load_key(tmp_path)
    assert str(path) in str(refusal.value)
    assert path.read_bytes() == damaged
