"""What `--help` says of every verb, and what a mistake is answered with."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from coordinator.cli import VERBS, fleet, main

ROOT = Path(__file__).resolve().parents[4]


def _commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(fleet, info_name="fleet")
    for name in VERBS:
        command = fleet.get_command(context, name)
        assert command is not None, name
        yield name, command
        if isinstance(command, click.Group):
            for inner in command.commands.values():
                yield f"{name} {inner.name}", inner


@pytest.mark.parametrize(("verb", "command"), list(_commands()), ids=str)
def test_every_help_has_an_example(verb: str, command: click.Command) -> None:
    """One that begins as one would type it, and lines that fit a terminal."""
    context = click.Context(command, info_name=verb, parent=click.Context(fleet, info_name="fleet"))
    text = command.get_help(context)
    after = text.partition("Example")[2]
    assert f"fleet {verb}" in after, f"fleet {verb} --help: has no example"
    assert max(map(len, text.splitlines())) <= 88, "what is to be copied is not broken"
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, f"fleet {verb} {option.opts[0]}: has no help"

    parent = click.Context(fleet, info_name="fleet", terminal_width=78)  # click leaves two
    shown = [line.strip() for line in command.get_help(
        click.Context(command, info_name=verb, parent=parent)
    ).splitlines()]  # fmt: skip
    said = re.findall(r"^ *((?:Example: )?(?:fleet|source) .*)", command.help or "", re.MULTILINE)
    assert [one for one in said if one not in shown] == []


@pytest.mark.system
def test_help_is_what_the_reference_says() -> None:
    """Line by line, in a window that is wide enough."""
    page = (ROOT / "docs/reference/cli.md").read_text("utf-8")
    for arguments in ([], ["broker"], ["run"]):
        shown = subprocess.run(
            [sys.executable, "-m", "coordinator.cli", *arguments, "--help"],
            capture_output=True, text=True, check=True, timeout=60, cwd=ROOT,
            env=os.environ | {"COLUMNS": "200"},
        ).stdout  # fmt: skip
        assert f"```\n{shown.rstrip()}\n```" in page, arguments


def test_every_verb_answers_in_json_and_what_is_shown_can_be_watched() -> None:
    """But what runs until it is stopped, and what prints a script or files."""
    options = {
        name: {option.opts[0] for option in command.params if isinstance(option, click.Option)}
        for name, command in _commands()
    }
    mute = {name for name, known in options.items() if "--json" not in known}
    services = {"broker", "coordinator", "agent", "dashboard", "top"}
    assert mute == services | {"broker config", "completion"}
    watched = {name for name, known in options.items() if "--watch" in known}
    assert watched == {"status", "list", "show", "why", "workers", "plan", "stats"} | {
        "check", "doctor"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "next_step"),
    [
        (["lst"], "Did you mean 'list'?"),
        (["list", "--statsu", "failed"], "--status"),
        (["show"], "fleet show --help"),
        (["status", "--broker", "localhost:18883"], "write mqtts://localhost:18883"),
        (["status", "--broker", "pi.lan"], "write mqtts://pi.lan"),
        (["status", "--broker", "mqtt://127.0.0.1:1", "--timeout", "1"], "--broker"),
        (["join", "192.0.2.7"], "fleet join 192.0.2.7:8885"),
        (["join", "no-such-file.json"], "there is no such file"),
    ],
)
def test_a_mistake_is_answered_with_the_next_step(
    arguments: list[str], next_step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In words, without the number that the system gives an error."""
    assert main(arguments) in {1, 2, 3}
    said = capsys.readouterr().err
    assert next_step in " ".join(said.split())
    assert "Errno" not in said
    assert "Traceback" not in said


def test_without_a_verb_there_is_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was typed wrongly, so nothing is called an error."""
    assert main([]) == 2
    said = capsys.readouterr().err
    assert said.startswith("Usage: fleet ")
    assert said.count("Usage:") == 1
    assert "error:" not in said
    assert "Run broker, coordinator and agents on this machine." in said
