"""`fleet drain` and `fleet resume`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from broker.machine import new_id
from broker.messages import AskDrain, AskResume
from coordinator.cli.common import client_options, host_argument, json_option

if TYPE_CHECKING:
    from coordinator.cli.client import OperatorClient


@click.command("drain")
@host_argument
@json_option
@client_options
def drain_command(client: OperatorClient, host: str, as_json: bool) -> None:
    """Give a host no new jobs; what it holds goes on. `fleet resume` lifts it.

    Example: fleet drain gaming-pc
    """
    expires_at = time.time() + client.timeout_s
    data = client.ask(AskDrain(id=new_id(), host=host, expires_at=expires_at))
    if as_json:
        from coordinator.cli import render

        render.print_json(data)
        return
    held = f"; it goes on with {', '.join(data['jobs'])}" if data["jobs"] else ""
    click.echo(f"{data['host']} is drained{held}")


@click.command("resume")
@host_argument
@json_option
@client_options
def resume_command(client: OperatorClient, host: str, as_json: bool) -> None:
    """Give a host jobs again: lifts a drain and a quarantine.

    Example: fleet resume gaming-pc
    """
    expires_at = time.time() + client.timeout_s
    data = client.ask(AskResume(id=new_id(), host=host, expires_at=expires_at))
    if as_json:
        from coordinator.cli import render

        render.print_json(data)
    else:
        click.echo(f"{data['host']} is given jobs again")
