"""Writes cli.md from the commands themselves: `python -m coordinator.cli.reference`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from coordinator.cli import HELP_COLUMNS, VERBS, fleet

_HEAD: Final = Path(__file__).with_name("reference.md")  # what the page begins with


def text() -> str:
    """Return the reference as Markdown."""
    context = click.Context(
        fleet,
        info_name="fleet",
        terminal_width=HELP_COLUMNS - 2,  # as in a window that is wide enough
        **fleet.context_settings,  # what `main` would have set
    )
    parts = [_HEAD.read_text("utf-8"), _block("fleet", fleet.get_help(context))]
    for name in VERBS:
        command = fleet.get_command(context, name)
        if command is not None:
            inner = click.Context(command, info_name=name, parent=context)
            parts.append(_block(f"fleet {name}", command.get_help(inner)))
            parts += _subcommands(command, inner)
    return "\n".join(parts)


def _subcommands(command: click.Command, context: click.Context) -> list[str]:
    if not isinstance(command, click.Group):
        return []
    blocks = []
    for name, inner in sorted(command.commands.items()):
        at = click.Context(inner, info_name=name, parent=context)
        blocks.append(_block(at.command_path, inner.get_help(at)))
    return blocks


def _block(title: str, body: str) -> str:
    return f"## {title}\n\n```\n{body.rstrip()}\n```\n"


if __name__ == "__main__":
    sys.stdout.write(text())
