"""The agent that runs on this machine, as `fleet doctor` finds it: where its settings are from."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from agent.running_agent import Beside, find

pytestmark = pytest.mark.system

HOST = f"beside-{os.getpid()}"


@contextlib.contextmanager
def _agent(folder: Path, environment: Mapping[str, str], *options: str) -> Iterator[int]:
    """Something that looks from beside as an agent does, and is none; yields its process id."""
    command = [sys.executable, "-c", "input()", "agent.service", f"--host={HOST}", *options]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.PIPE)
    try:
        yield process.pid
    finally:
        process.communicate(b"\n")


def _config(path: Path, data: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[agent]\ndata = '{data}'\n")


def _found(tmp_path: Path) -> Beside:
    found = find(tmp_path / "state of nobody", HOST)
    assert found is not None
    return found


def test_its_settings_are_looked_for_where_it_would_look(tmp_path: Path) -> None:
    """By its own environment and from its own folder, in the order in which it looks itself."""
    home = {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    _config(tmp_path / ".config" / "fleet" / "fleet.toml", "/of/home")
    _config(tmp_path / "xdg" / "fleet" / "fleet.toml", "/of/xdg")
    _config(tmp_path / "here" / "named.toml", "beside/named")
    for said, data in (
        ({}, Path("/of/home")),
        ({"XDG_CONFIG_HOME": str(tmp_path / "xdg")}, Path("/of/xdg")),
        ({"FLEET_CONFIG": "named.toml"}, tmp_path / "here" / "beside" / "named"),
    ):
        with _agent(tmp_path / "here", {**home, **said}) as process:
            found = _found(tmp_path)
            assert (found.process, found.data, found.seen, found.ours) == (
                process, data, True, True
            )  # fmt: skip
    _config(tmp_path / "here" / "fleet.toml", "/of/folder")
    with _agent(tmp_path / "here", home):
        assert _found(tmp_path).data == Path("/of/folder")


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be somebody else"
)
@pytest.mark.parametrize(("options", "data"), [((), None), (("--data=/srv",), Path("/srv"))])
def test_what_may_not_be_seen_is_not_made_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], data: Path | None
) -> None:
    """Another user sees the command line alone; his own settings are not the agent's."""
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, "/nowhere")
    with _agent(tmp_path, {}, *options):
        os.seteuid(65534)
        try:
            found = _found(tmp_path)
        finally:
            os.seteuid(0)
    assert (found.data, found.seen) == (data, False)
