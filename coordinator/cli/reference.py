"""Writes cli.md from the commands themselves: `python -m coordinator.cli.reference`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from coordinator.cli import HELP_COLUMNS, fleet

_HEAD: Final = Path(__file__).with_name("reference.md")  # what the page begins with


def text() -> str:
    """Return the reference as Markdown."""
    context = click.Context(
        fleet,
        info_name="fleet",
        terminal_width=HELP_COLUMNS - 2,  # as in a window that is wide enough
        **fleet.context_settings,  # what `main` would have set
    )
    return "\n".join([_HEAD.read_text("utf-8"), *_blocks(context)])


def _blocks(context: click.Context) -> Iterator[str]:
    """Yield the help of a command, then that of each command within it."""
    command = context.command
    yield f"## {context.command_path}\n\n```\n{command.get_help(context).rstrip()}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (inner := command.get_command(context, name)) is not None:
                yield from _blocks(click.Context(inner, info_name=name, parent=context))


if __name__ == "__main__":
    sys.stdout.write(text())
