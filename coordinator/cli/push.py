"""`fleet push`, `fleet programs`, `fleet data`: what people push: sent, listed, removed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from broker.figures import counted, size
from broker.protocol.messages import AskRemove
from broker.system.machine import new_id
from coordinator.client.rows import title_of
from coordinator.ui.candidates import complete_pushed
from coordinator.ui.live import View, viewing
from coordinator.ui.options import PATH, OperatorClient, Where, asking, client_options
from coordinator.ui.progress import transfer
from coordinator.ui.pushed import KINDS, PushedKind
from coordinator.ui.words import answer, is_json, print_json, say

PROGRAMS, DATASETS = KINDS


@click.command("push")
@click.argument("folder", metavar="DIR", type=PATH)
@asking
def push_command(at: Where, folder: Path) -> int:
    """Send the program in DIR to the fleet, and print how a manifest calls it.

    DIR has a program.toml. The files that git tracks or would add are sent, and what the
    coordinator has already is not sent again. With a certificate the program is signed by it.

    Example: fleet push ./vision
    """
    from coordinator.client.program_push import push

    pushed = push(at.connect, folder, transfer)
    by = f"signed by {pushed.signer}" if pushed.signer else "not signed"
    how = "" if pushed.sent else "; it was there already"
    return _tell(pushed, f"{size(pushed.size_bytes)}, {by}{how}")


@click.group("programs")
def programs_command() -> None:
    """List the programs of the fleet, or remove one.

    Example: fleet programs rm vision@3fa9c1
    """


@click.group("data")
def data_command() -> None:
    """Send datasets to the fleet, list them, or remove one.

    Example: fleet data push cifar ./cifar10
    """


@data_command.command("push")
@click.argument("name", metavar="NAME")
@click.argument("folder", metavar="DIR", type=PATH)
@asking
def push_data(at: Where, name: str, folder: Path) -> int:
    """Send all files in DIR as the dataset NAME, and print how a manifest calls it.

    What the fleet has of the newest dataset of that name is not sent again; nor is what was sent
    by a push that was cut off, if it is repeated within a day.

    Example: fleet data push cifar ./cifar10
    """
    from coordinator.client import dataset_push

    pushed = dataset_push.push_data(at.connect, name, folder, transfer)
    is_there = pushed.size_bytes and not pushed.sent_bytes  # what has no bytes is never sent
    sent = "which were there already" if is_there else f"{size(pushed.sent_bytes)} sent"
    return _tell(pushed, f"{size(pushed.size_bytes)} in {counted(pushed.files, 'file')}, {sent}")


def _tell(pushed: Any, more: str) -> int:
    """Print how a manifest calls what was pushed, and more of it for people."""
    if is_json():
        print_json(asdict(pushed))
    else:
        click.echo(pushed.title)
        say(more, err=True)
    return 0


def _add_verbs(group: click.Group, kind: PushedKind, about: str, use: str, example: str) -> None:
    """Add `list` and `rm` to a group: `about` is what a list tells, `use` what keeps a thing."""
    noun = kind.kind

    @group.command("list", help=f"{about}\n\nExample: fleet {group.name} list")
    @viewing
    def list_command(client: OperatorClient) -> View:
        def read() -> list[dict[str, Any]]:
            return list(client.ask(kind.ask())["pushed"])

        return View(read, lambda told: [kind.shown(told)])

    @group.command("rm", help=f"Remove a {noun} that {use}; it is deleted later.\n\nA name alone "
                   f"means the newest.\n\nExample: fleet {group.name} rm {example}")  # fmt: skip
    @click.argument(noun, metavar="NAME[@DIGEST]", shell_complete=complete_pushed)
    @client_options
    def rm_command(client: OperatorClient, **named: str) -> None:
        gone = client.ask(AskRemove(id=new_id(), kind=kind.kind, name=named[noun]))
        answer(gone, f"removed {title_of(gone['name'], gone['digest'])}")


_add_verbs(
    programs_command, PROGRAMS, "The programs, oldest first: how many jobs have each, which hosts' "
    "owners let it in.\n\n`fleet why JOB` tells why others do not. A wider window shows more.",
    "neither the manifest nor an open job has", "vision@3fa9c1",
)  # fmt: skip
_add_verbs(
    data_command, DATASETS, "The datasets, oldest first: how many jobs read each, which hosts hold "
    "it.\n\nA wider window shows more.",
    "neither the manifest nor an open job reads", "cifar@77b0f2",
)  # fmt: skip
