"""Sentences as people read them in a window, and as programs read them."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.service import __main__ as agent_service
from agent.service import snooze
from broker.doctor.findings import fail, tell
from broker.embedded import __main__ as server
from broker.wrapping import laid_out, quoted
from coordinator import cli
from coordinator.service import __main__ as coordinator_service


class _Window(io.StringIO):
    """A terminal, as wide as COLUMNS says."""

    def isatty(self) -> bool:
        return True


TEXT = "pi: nobody came; run `fleet enroll pi` again\n  -H seed: unknown-of-mlp"


def test_no_word_and_no_command_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "28")
    assert laid_out(TEXT, _Window(), indent=2).splitlines() == [
        "pi: nobody came; run",
        "  `fleet enroll pi` again",
        "  -H seed: unknown-of-mlp",
    ]
    assert laid_out(TEXT, io.StringIO(), indent=2) == TEXT
    long = f"a path is {'long/' * 8}"
    assert laid_out(long, _Window()).splitlines() == ["a path is", "long/" * 8]
    monkeypatch.setenv("COLUMNS", "3")
    assert laid_out("a window that is too narrow", _Window(), least=20).splitlines() == [
        "a window that is too", "narrow"
    ]  # fmt: skip


def test_what_goes_on_hangs_from_where_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "28")
    assert laid_out("pi:\n  -H seed: is not a whole number of it", _Window(), indent=2) == (
        "pi:\n  -H seed: is not a whole\n    number of it"
    )
    assert laid_out(f"  {'long/' * 8}", _Window()) == f"  {'long/' * 8}"


@pytest.mark.parametrize("amount", ["2 s", "46.2 GiB", "90 min", "2.5 h", "1,024 B", "180 W"])
def test_no_figure_is_parted_from_its_unit(monkeypatch: pytest.MonkeyPatch, amount: str) -> None:
    text = f"the broker answers, but no coordinator did in {amount}: it is away, 2 such hosts are"
    for width in range(20, 90):
        monkeypatch.setenv("COLUMNS", f"{width}")
        lines = laid_out(text, _Window(), indent=2).splitlines()
        assert any(amount in line for line in lines), lines
        assert " ".join(line.strip() for line in lines) == text
        assert max(map(len, lines)) <= width
    assert laid_out(text, io.StringIO()) == text


def _complaint(window: pytest.MonkeyPatch, told: Callable[[], int]) -> list[str]:
    """What a program says on standard error, in a window of 40 columns."""
    out = _Window()
    window.setenv("COLUMNS", "40")
    window.setattr(sys, "stderr", out)
    assert told() == 2
    return out.getvalue().splitlines()


def _two_identities(folder: Path) -> None:
    for name in ("attic", "desk"):
        made = folder / "fleet" / "identities" / name
        made.mkdir(parents=True)
        (made / "client.crt").touch()


@pytest.mark.parametrize("program", ["agent", "snooze", "coordinator", "broker", "fleet"])
def test_every_program_complains_alike(
    program: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in os.environ:
        if name.startswith("FLEET_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    _two_identities(tmp_path)
    far = ["--broker", "mqtts://pi.lan"]
    state = ["--state", str(tmp_path / "state")]
    run: Callable[[], int] = {
        "agent": lambda: agent_service.main([*far, *state]),
        "snooze": lambda: snooze.main(["--time", "soon", "--state", str(tmp_path)]),
        "coordinator": lambda: coordinator_service.main([*far, *state]),
        "broker": lambda: server.main(["--listen", "all the world, at every port of it"]),
        "fleet": lambda: cli.main(["status", "--broker", "http://pi.lan:1883/and/more"]),
    }[program]
    told = _complaint(monkeypatch, run)
    assert told[0].startswith("error:")
    assert len(told) > 1
    assert all(line.startswith("  ") and line[2] != " " for line in told[1:]), told
    # Two blanks before a path that is longer than the window.
    assert max(len(line) for line in told if str(tmp_path) not in line) <= 40, told
    if program == "agent":
        assert "several identities (attic, desk)" in " ".join(line.strip() for line in told)


@pytest.mark.words
def test_a_finding_goes_on_below_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    out = _Window()
    monkeypatch.setenv("COLUMNS", "44")
    tell(
        "agent",
        [fail("data", "there is no folder", "name another with --data")],
        out,
        as_json=False,
    )
    assert out.getvalue().splitlines() == [
        "fail  data         there is no folder; name",
        "                   another with --data",
        "1 problem: data.",
    ]


@pytest.mark.parametrize(("word", "posix", "windows"), [
    ("3h", "3h", "3h"),
    (Path("plan.toml"), "plan.toml", "plan.toml"),
    ("C:\\fleet\\operator@bob", "'C:\\fleet\\operator@bob'", "C:\\fleet\\operator@bob"),
    ("C:\\Program Files\\fleet", "'C:\\Program Files\\fleet'", '"C:\\Program Files\\fleet"'),
    ("R&D(1)", "'R&D(1)'", '"R&D(1)"'),
    ("@here", "@here", '"@here"'),
    ("", "''", '""'),
])  # fmt: skip
def test_a_word_of_a_command_is_quoted_for_the_systems_shell(
    word: object, posix: str, windows: str
) -> None:
    """For cmd.exe the quotes of a POSIX shell are part of the word."""
    assert (quoted(word, windows=False), quoted(word, windows=True)) == (posix, windows)
