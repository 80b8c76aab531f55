"""`fleet cancel`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from broker.errors import ConfigError
from broker.machine import new_id
from broker.messages import AskCancel, AskCancelPending, AskStatus
from broker.prose import counted
from coordinator.cli import EXIT_REFUSED
from coordinator.cli.common import client_options, is_confirmed, json_option
from coordinator.cli.complete import complete_job
from coordinator.cli.words import say, tell_of_namesakes

if TYPE_CHECKING:
    from coordinator.cli.client import OperatorClient


@click.command("cancel")
@click.argument("job", metavar="[JOB]", required=False, shell_complete=complete_job)
@click.option("--all-pending", is_flag=True, help="Every job that is pending; asks first.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@client_options
def cancel_command(
    client: OperatorClient, job: str | None, all_pending: bool, yes: bool, as_json: bool
) -> int:
    """Cancel a job in any state but the final ones; what runs is stopped.

    With --all-pending everything that waits is cancelled; what runs goes on.

    \b
    Examples:
      fleet cancel mlp-oracle
      fleet cancel --all-pending
    """  # noqa: D301 - \b is click's
    if all_pending == (job is not None):
        raise click.UsageError("say which job, or --all-pending")
    if job is None:
        return _all_pending(client, yes=yes, as_json=as_json)
    expires_at = time.time() + client.timeout_s
    data = client.ask(AskCancel(id=new_id(), job=job, expires_at=expires_at))
    tell_of_namesakes(data, job)
    if as_json:
        from coordinator.cli import render

        render.print_json(data)
    else:
        say(f"{data['name']} ({data['job_id'][:12]}) is {data['state']}")
    return 0


def _all_pending(client: OperatorClient, *, yes: bool, as_json: bool) -> int:
    from coordinator.cli import render

    count = client.ask(AskStatus(id=new_id()))["jobs"]["pending"]
    if count and not yes:
        if not sys.stdin.isatty():
            waits = "1 job is pending" if count == 1 else f"{count} jobs are pending"
            raise ConfigError(f"{waits}; say --yes to cancel {'it' if count == 1 else 'them'}")
        if not is_confirmed(f"Cancel {_jobs(count)}?", as_json=as_json):
            return EXIT_REFUSED
    data: dict[str, Any] = {"cancelled": 0, "names": []}
    if count:
        expires_at = time.time() + client.timeout_s
        data = client.ask(AskCancelPending(id=new_id(), most=count, expires_at=expires_at))
    if as_json:
        render.print_json(data)
    elif data["cancelled"]:
        shown = ", ".join(map(str, data["names"]))
        more = ", ..." if data["cancelled"] > len(data["names"]) else ""
        say(render.printable(f"cancelled {_jobs(data['cancelled'])}: {shown}{more}"))
    else:
        say("nothing is pending")
    return 0


def _jobs(count: int) -> str:
    return counted(count, "pending job")
