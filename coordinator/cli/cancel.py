"""`fleet cancel`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from broker.machine import new_id
from broker.messages import AskCancel
from coordinator.cli.common import client_options, job_argument, json_option

if TYPE_CHECKING:
    from coordinator.cli.client import OperatorClient


@click.command("cancel")
@job_argument
@json_option
@client_options
def cancel_command(client: OperatorClient, job: str, as_json: bool) -> None:
    """Cancel a job in any state but the final ones; what runs is stopped.

    Example: fleet cancel mlp-oracle
    """
    expires_at = time.time() + client.timeout_s
    data = client.ask(AskCancel(id=new_id(), job=job, expires_at=expires_at))
    if as_json:
        from coordinator.cli import render

        render.print_json(data)
    else:
        click.echo(f"{data['name']} ({data['job_id'][:12]}) is {data['state']}")
