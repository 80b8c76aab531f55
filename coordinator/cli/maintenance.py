"""`fleet backup` and `fleet fsck`: become the program that cares for the state folder.

The command line itself opens neither the ledger nor the store.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from coordinator.ui.options import json_option

F = TypeVar("F", bound=Callable[..., Any])


def _folder_options(function: F) -> F:
    config = click.option("--config", metavar="FILE", help="Configuration file.")
    state = click.option("--state", metavar="DIR", help="The coordinator's state folder.")
    return state(config(function))


@click.command("backup")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@json_option
@_folder_options
@click.pass_context
def backup_command(
    ctx: click.Context, file: Path, *, as_json: bool, state: str | None, config: str | None
) -> int:
    """Copy the ledger to FILE, check the copy, and say what is in it.

    Runs on the coordinator's machine, while the coordinator runs or not. FILE must not exist.
    Artifacts are not in it: they never change once they are there, so copy `models/` after it.

    Example: fleet backup /backup/ledger-$(date +%F).db
    """
    return _become(ctx, "backup", [str(file.absolute()), *_flags(as_json=as_json)], state, config)


@click.command("fsck")
@click.option("--repair", is_flag=True, help="Repair what is safe; the coordinator must not run.")
@json_option
@_folder_options
@click.pass_context
def fsck_command(
    ctx: click.Context, *, repair: bool, as_json: bool, state: str | None, config: str | None
) -> int:
    """Compare ledger, history, artifacts, index and part files; read every artifact.

    Runs on the coordinator's machine. Each finding is a line that says what --repair would do about
    it. No job's state is ever changed. Exit code 0: nothing is left to be done, 1: something is.

    Example: fleet fsck --repair
    """
    flags = [*(["--repair"] if repair else []), *_flags(as_json=as_json)]
    return _become(ctx, "fsck", flags, state, config)


def _flags(*, as_json: bool) -> list[str]:
    return ["--json"] if as_json else []


def _become(
    ctx: click.Context, verb: str, arguments: list[str], state: str | None, config: str | None
) -> int:
    from coordinator.ui.processes import become

    config = config or (ctx.obj or {}).get("config")
    for name, value in (("--state", state), ("--config", config)):
        if value is not None:
            arguments += [name, value]
    return become("coordinator.admin", [verb, *arguments])
