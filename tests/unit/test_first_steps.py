"""What a new user is told who does the unexpected: what is wrong, and what to do."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.settings import config_home
from coordinator.cli import _OTHER_WORDS, VERBS, main

ROOT = Path(__file__).resolve().parents[2]
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


def test_a_broker_at_another_port_is_handed_out_with_it(
    home: Path, done: Say, refused: Say
) -> None:
    """`fleet init` says where the port goes; what it makes and advises then has it."""
    said = refused("init", "--broker", "pi.lan:28883", "--operator", "alice")
    assert "write a name or an address alone" in said
    assert 'put `url = "mqtts://NAME:PORT"` into [broker] of fleet.toml' in said
    (home / "fleet.toml").write_text('[broker]\nurl = "mqtts://pi.lan:28883"\n')
    said = done("init", "--broker", "pi.lan", "--operator", "alice")
    assert "fleet broker --listen 0.0.0.0:28883" in said
    written = (home / "identities" / "coordinator" / "broker.url").read_text()
    assert written == "mqtts://pi.lan:28883\n"


@pytest.mark.skipif(os.name != "posix", reason="ulimit is a shell's")
@pytest.mark.parametrize("program", ["coordinator", "agent"])
def test_a_disk_that_takes_nothing_is_named(home: Path, program: str) -> None:
    """Whoever starts a program learns which folder it is about."""
    state = home / "state"
    ran = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -f 0; exec "$0" -m "$1" --state "$2"', sys.executable,
         f"{program}.service", str(state)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    assert ran.stderr == f"error: {state / 'lock'}: File too large\n"


@pytest.mark.parametrize("program", ["coordinator", "agent"])
@pytest.mark.parametrize("below", ["", "state"])
def test_a_file_where_a_folder_is_wanted_is_called_so(
    home: Path, program: str, below: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """That it exists is not the trouble; it is to be left as it is."""
    file = home / "plan.toml"
    file.write_text("precious")
    run = importlib.import_module(f"{program}.service").main
    assert run(["--state", str(file / below)]) == 2
    said = capsys.readouterr().err
    assert said == f"error: {file}: is a file, and a folder is wanted; name another\n"
    assert file.read_text() == "precious"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("jobs", "list"), ("hosts", "workers"), ("stauts", "status"), ("stat", "stats"),
     ("wrokers", "workers"), ("lst", "list")],
)  # fmt: skip
def test_a_verb_of_another_name_is_found(refused: Say, typed: str, meant: str) -> None:
    """By what it is called elsewhere, else by its letters."""
    assert f"No such command '{typed}'. Did you mean '{meant}'?" in refused(typed)


def test_every_verb_that_is_proposed_exists() -> None:
    """And none hides behind another word."""
    assert set(_OTHER_WORDS.values()) <= set(VERBS)
    assert not set(_OTHER_WORDS) & set(VERBS)


def test_a_value_that_looks_like_an_option_is_one_all_the_same(home: Path) -> None:
    """It is refused as what it was given for, not with the usage of another program."""
    ran = subprocess.run(
        [sys.executable, "-m", "coordinator.cli", "agent", "--host", "-x"],
        capture_output=True, text=True, timeout=60, check=False, cwd=ROOT,
    )  # fmt: skip
    assert ran.returncode == 2
    assert home.is_dir()
    assert "usage:" not in ran.stderr
    assert "-x" in ran.stderr
    assert "host" in ran.stderr
