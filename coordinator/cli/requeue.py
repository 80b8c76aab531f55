"""`fleet requeue`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from broker.machine import new_id
from broker.messages import AskRequeue
from coordinator.cli.common import client_options, job_argument, json_option

if TYPE_CHECKING:
    from coordinator.cli.client import OperatorClient


@click.command("requeue")
@job_argument
@json_option
@client_options
def requeue_command(client: OperatorClient, job: str, as_json: bool) -> None:
    """Put a job back into the queue, from any state but pending; what runs is stopped.

    It is trained from the beginning, with fresh retries and losses: a checkpoint that was kept is
    left aside. Only a result that came after the job was given up is taken as it is.

    Example: fleet requeue mlp-oracle
    """
    expires_at = time.time() + client.timeout_s
    data = client.ask(AskRequeue(id=new_id(), job=job, expires_at=expires_at))
    if as_json:
        from coordinator.cli import render

        render.print_json(data)
    else:
        click.echo(f"{data['name']} ({data['job_id'][:12]}) is {data['state']}")
