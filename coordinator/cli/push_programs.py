"""`fleet push` and `fleet programs`: programs of one's own, sent to the fleet, listed, removed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from broker.protocol.messages import AskPrograms, AskRemove
from broker.system.machine import new_id
from coordinator.ui import terminal
from coordinator.ui.live import View, viewing
from coordinator.ui.options import PATH, OperatorClient, Where, asking
from coordinator.ui.progress import transfer
from coordinator.ui.words import is_json, local, print_json, say, short, size

if TYPE_CHECKING:
    from coordinator.client.pushing import Pushed


@click.command("push")
@click.argument("folder", metavar="DIR", type=PATH)
@asking
def push_command(at: Where, folder: Path) -> int:
    """Send the program in DIR to the fleet, and print how a manifest calls it.

    DIR has a program.toml. The files that git tracks or would add are sent, and what the
    coordinator has already is not sent again. With a certificate the program is signed by it.

    \b
    Example:
      fleet push ./vision
    """  # noqa: D301 - \b is click's
    with at.connect() as client:
        pushed = send(client, folder)
    if is_json():
        print_json(asdict(pushed))
        return 0
    by = f"signed by {pushed.signer}" if pushed.signer else "not signed"
    how = "" if pushed.sent else "; it was there already"
    click.echo(pushed.title)
    say(f"{size(pushed.size_bytes)}, {by}{how}", err=True)
    return 0


def send(client: OperatorClient, folder: Path) -> Pushed:
    """Push the program in a folder; show how far that is."""
    from coordinator.client.pushing import push

    return push(client, folder, transfer)


@click.group("programs")
def programs_command() -> None:
    """List the programs of the fleet, or remove one.

    \b
    Examples:
      fleet programs list
      fleet programs rm vision@3fa9c1
    """  # noqa: D301 - \b is click's


@programs_command.command("list")
@viewing
def list_command(client: OperatorClient) -> View:
    """The programs, oldest first: how large, by whom, how many jobs and hosts have them.

    HOSTS counts the hosts whose owners let the program in; `fleet why JOB` tells why others do not.

    Example: fleet programs list
    """
    return View(lambda: list(client.ask(AskPrograms(id=new_id()))["programs"]), _draw)


def _draw(rows: list[dict[str, Any]]) -> Iterator[Any]:
    if not rows:
        yield "no programs; `fleet push DIR` sends one"
        return
    columns = ("PROGRAM", "SIGNED BY", "PUSHED", ">SIZE", ">JOBS", ">HOSTS")
    cells = [
        (
            f"{row['name']}@{short(row['digest'])}", ", ".join(row["signers"]) or "-",
            local(row["pushed_at"]), size(row["size_bytes"]), row["jobs"], row["host_count"],
        )
        for row in rows
    ]  # fmt: skip
    yield terminal.table(columns, cells)


@programs_command.command("rm")
@click.argument("program", metavar="NAME@DIGEST")
@asking
def rm_command(at: Where, program: str) -> int:
    """Remove a program that neither the manifest nor an open job has; it is deleted later.

    Example: fleet programs rm vision@3fa9c1
    """
    with at.connect() as client:
        gone = client.ask(AskRemove(id=new_id(), name=program))
    if is_json():
        print_json(gone)
    else:
        say(f"removed {gone['name']}@{short(gone['digest'])}")
    return 0
