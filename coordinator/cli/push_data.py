"""`fleet data`: trees of files that jobs read, sent to the fleet, listed, removed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from broker.figures import counted
from broker.protocol.messages import AskDataRemove, AskDatasets
from broker.system.machine import new_id
from coordinator.ui import terminal
from coordinator.ui.candidates import complete_dataset
from coordinator.ui.live import View, viewing
from coordinator.ui.options import PATH, OperatorClient, Where, asking
from coordinator.ui.progress import transfer
from coordinator.ui.words import is_json, local, print_json, say, short, size

if TYPE_CHECKING:
    from coordinator.client.dataset_push import PushedData


@click.group("data")
def data_command() -> None:
    """Send datasets to the fleet, list them, or remove one.

    \b
    Examples:
      fleet data push cifar ./cifar10
      fleet data list
      fleet data rm cifar@77b0f2
    """  # noqa: D301 - \b is click's


@data_command.command("push")
@click.argument("name", metavar="NAME")
@click.argument("folder", metavar="DIR", type=PATH)
@asking
def push_command(at: Where, name: str, folder: Path) -> int:
    """Send all files in DIR as the dataset NAME, and print how a manifest calls it.

    What the fleet has of the newest dataset of that name is not sent again; nor is what was sent
    by a push that was cut off, if it is repeated within a day.

    \b
    Example:
      fleet data push cifar ./cifar10
    """  # noqa: D301 - \b is click's
    pushed = send(at, name, folder)
    if is_json():
        print_json(asdict(pushed))
        return 0
    click.echo(pushed.title)
    sent = f"{size(pushed.sent_bytes)} sent" if pushed.sent_bytes else "it was there already"
    say(f"{size(pushed.size_bytes)} in {counted(pushed.files, 'file')}, {sent}", err=True)
    return 0


def send(at: Where, name: str, folder: Path) -> PushedData:
    """Push a folder as a dataset; show how far that is."""
    from coordinator.client.dataset_push import push_data

    return push_data(at.connect, name, folder, transfer)


@data_command.command("list")
@viewing
def list_command(client: OperatorClient) -> View:
    """The datasets, oldest first: how large, by whom, how many jobs read and hosts hold them.

    Example: fleet data list
    """
    return View(lambda: list(client.ask(AskDatasets(id=new_id()))["datasets"]), _draw)


def _draw(rows: list[dict[str, Any]]) -> Iterator[Any]:
    if not rows:
        yield "no datasets; `fleet data push NAME DIR` sends one"
        return
    columns = ("DATASET", "PUSHED BY", "PUSHED", ">SIZE", ">FILES", ">JOBS", ">HOSTS")
    cells = [
        (
            f"{row['name']}@{short(row['digest'])}", row["pushed_by"], local(row["pushed_at"]),
            size(row["size_bytes"]), row["files"], row["jobs"], row["host_count"],
        )
        for row in rows
    ]  # fmt: skip
    yield terminal.table(columns, cells)


@data_command.command("rm")
@click.argument("dataset", metavar="NAME[@DIGEST]", shell_complete=complete_dataset)
@asking
def rm_command(at: Where, dataset: str) -> int:
    """Remove a dataset that neither the manifest nor an open job reads; it is deleted later.

    A name alone means the newest.

    Example: fleet data rm cifar@77b0f2
    """
    with at.connect() as client:
        gone = client.ask(AskDataRemove(id=new_id(), name=dataset))
    if is_json():
        print_json(gone)
    else:
        say(f"removed {gone['name']}@{short(gone['digest'])}")
    return 0
