"""`fleet forget`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from broker.protocol.messages import AskForget
from broker.system.machine import new_id
from coordinator.ui.options import client_options, host_argument, json_option
from coordinator.ui.words import print_json, say

if TYPE_CHECKING:
    from coordinator.client.client import OperatorClient


@click.command("forget")
@host_argument
@json_option
@client_options
def forget_command(client: OperatorClient, host: str, as_json: bool) -> None:
    """Forget a host that is gone for good; what its jobs came to stays.

    It is refused while the host is online or holds a job. A drain is forgotten as well: should the
    agent come back, it is a new host. To keep it out, `fleet revoke HOST`.

    Example: fleet forget old-laptop
    """
    expires_at = time.time() + client.timeout_s
    data = client.ask(AskForget(id=new_id(), host=host, expires_at=expires_at))
    if as_json:
        print_json(data)
    else:
        say(f"{data['host']} is forgotten")
