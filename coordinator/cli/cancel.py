"""`fleet cancel`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from broker.protocol.messages import AskCancel
from broker.system.machine import new_id
from coordinator.ui.options import client_options, json_option
from coordinator.ui.several import Choice, change, choosing, yes_option
from coordinator.ui.words import print_json, say, tell_of_namesakes

if TYPE_CHECKING:
    from coordinator.client.client import OperatorClient


@click.command("cancel")
@choosing
@yes_option
@json_option
@client_options
def cancel_command(client: OperatorClient, choice: Choice, yes: bool, as_json: bool) -> int:
    """Cancel jobs in any state but the final ones; what runs is stopped.

    Of several jobs it asks once, and tells what came of each. What --status and --model choose has
    to be confirmed, in a script by --yes. A job that is in none of the states of --status by then
    is left as it is.

    \b
    Examples:
      fleet cancel mlp-oracle
      fleet cancel mlp-oracle gru-oracle
      fleet cancel --status pending --model gbt
    """  # noqa: D301 - \b is click's
    if choice.only is None:
        return change(client, "cancel", choice, yes=yes, as_json=as_json)
    expires_at = time.time() + client.timeout_s
    data = client.ask(AskCancel(id=new_id(), job=choice.only, expires_at=expires_at))
    tell_of_namesakes(data, choice.only)
    if as_json:
        print_json(data)
    else:
        say(f"{data['name']} ({data['job_id'][:12]}) is {data['state']}")
    return 0
