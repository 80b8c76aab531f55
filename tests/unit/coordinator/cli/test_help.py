"""What `--help` says of every verb, and what a mistake is answered with."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from coordinator.cli import VERBS, fleet, main


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


def test_every_verb_answers_in_json_and_what_is_shown_can_be_watched() -> None:
    options = {
        name: {option.opts[0] for option in command.params if isinstance(option, click.Option)}
        for name, command in _commands()
    }
    mute = {name for name, known in options.items() if "--json" not in known}
    services = {"broker", "coordinator", "agent", "dashboard", "top"}
    assert mute == services | {"broker config", "completion", "programs", "data"}
    watched = {name for name, known in options.items() if "--watch" in known}
    assert watched == {"status", "list", "show", "why", "workers", "plan", "stats"} | {
        "check", "doctor", "programs list", "data list"
    }  # fmt: skip


def test_without_a_verb_there_is_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    said = capsys.readouterr().err
    assert said.startswith("Usage: fleet ")
    assert said.count("Usage:") == 1
    assert "error:" not in said
    assert "Run broker, coordinator and agents on this machine." in said
