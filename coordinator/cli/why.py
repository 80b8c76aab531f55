"""`fleet why`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from broker.machine import new_id
from broker.messages import AskWhy
from coordinator.cli.common import client_options, job_argument, json_option

if TYPE_CHECKING:
    from coordinator.cli.client import OperatorClient


@click.command("why")
@job_argument
@json_option
@client_options
def why_command(client: OperatorClient, job: str, as_json: bool) -> None:
    """Why a job is not running: every reason, host by host.

    Example: fleet why gru-oracle
    """
    data = client.ask(AskWhy(id=new_id(), job=job))
    from coordinator.cli import render

    if as_json:
        render.print_json(data)
        return
    out = render.console()
    line = render.Text(f"{data['name']} is ").append(render.state(data["state"]))
    out.print(line.append(render.printable(f": {data['summary']}")), soft_wrap=True)
    for host in data["hosts"]:
        if host["eligible"]:
            out.print(render.Text("  ").append(host["host"], "bold").append("  can take it"))
        for index, reason in enumerate(host["reasons"]):
            name = host["host"] if index == 0 else " " * len(host["host"])
            words = f"  {render.printable(reason)}"
            out.print(render.Text("  ").append(name, "bold").append(words), soft_wrap=True)
