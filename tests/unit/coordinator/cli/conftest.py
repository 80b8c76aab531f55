"""A machine on which nothing of a fleet is yet, and verbs that are called on it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.system.settings import config_home
from coordinator.cli import main

Say = Callable[..., str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing of a fleet is yet; where its settings go."""
    for name in os.environ:
        if name.startswith("FLEET_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    config_home().mkdir(parents=True)
    return config_home()


@pytest.fixture
def done(home: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs a command that goes well; what it prints."""
    assert home.is_dir()

    def run(*arguments: str) -> str:
        code = main([*arguments])
        said = capsys.readouterr()
        assert code == 0, said.err
        return said.out

    return run


@pytest.fixture
def refused(home: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs a command that is refused; its words, in one line."""
    assert home.is_dir()

    def run(*arguments: str) -> str:
        assert main([*arguments]) in {1, 2}
        return " ".join(capsys.readouterr().err.split())

    return run
