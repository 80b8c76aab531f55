"""`fleet operator-key`."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import click

from broker.errors import LocalError
from broker.pki import keyfiles
from broker.system.settings import expanded, usual_config
from coordinator.ui.options import json_option
from coordinator.ui.words import print_json, say

KEY_BYTES = 32  # as long as what HMAC-SHA256 makes of it


@click.command("operator-key")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, metavar="FILE",
              help="Where to; must not exist.")  # fmt: skip
@json_option
def operator_key_command(output: Path, as_json: bool) -> None:
    """Make an operator key: commands are then taken from those who have it.

    The file can be read by its owner alone, and the key is shown nowhere. The coordinator and each
    operator need the same: name it as `[broker] operator_key_file` on their machines.

    Example: fleet operator-key -o ~/.config/fleet/operator.key
    """
    path = expanded(output).absolute()
    if os.path.lexists(path):
        raise LocalError(f"{output} exists already; choose another name or move it away")
    keyfiles.write(path, f"{secrets.token_hex(KEY_BYTES)}\n".encode())
    config = usual_config()
    if as_json:
        print_json({"ok": True, "file": str(path), "config": str(config)})
        return
    say(f"{path}: made")
    say(
        "next: copy it to the coordinator's machine and to each operator's, and name it there in "
        f"{config}:\n"
    )
    click.echo(f'  [broker]\n  operator_key_file = "{path.as_posix()}"\n')
    say("then start the coordinator again: it takes signed commands only from then on")
