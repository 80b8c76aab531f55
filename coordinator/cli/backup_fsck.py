"""`fleet backup` and `fleet fsck`: become the program that takes care of the state folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from coordinator.cli.serve import become_module
from coordinator.ui.options import PATH, Where, flag, json_option, option, where
from coordinator.ui.words import is_json

_state_option = option("--state", "DIR", "The coordinator's state folder.")


@click.command("backup")
@click.argument("file", metavar="FILE", type=PATH)
@json_option
@_state_option
@where("config")
def backup_command(at: Where, file: Path, state: str | None) -> int:
    """Copy the ledger to FILE, check the copy, and say what is in it.

    Runs on the coordinator's machine, while the coordinator runs or not. FILE must not exist.
    Artifacts are not in it: they never change once they are there, so copy `models/` after it.

    Example: fleet backup /backup/ledger-$(date +%F).db
    """
    return _care(at, state, "backup", str(file.absolute()))


@click.command("fsck")
@flag("--repair", "Repair what is safe; the coordinator must not run.")
@json_option
@_state_option
@where("config")
def fsck_command(at: Where, state: str | None, *, repair: bool) -> int:
    """Compare ledger, artifacts and logs; read every artifact.

    Runs on the coordinator's machine. Each finding is a line that says what --repair would do about
    it. No job's state is ever changed. Exit code 0: nothing is left to be done, 1: something is.

    Example: fleet fsck --repair
    """
    return _care(at, state, "fsck", *["--repair"] * repair)


def _care(at: Where, state: str | None, *words: str) -> int:
    """Become the program that takes care of the state folder."""
    options: dict[str, Any] = {"state": state, "json": is_json() or None, "config": at.config}
    return become_module("coordinator.admin", options, words)
