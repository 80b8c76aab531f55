"""`fleet requeue`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from broker.protocol.messages import AskRequeue, AskShow
from broker.sentences import printable
from broker.system.machine import new_id
from coordinator.jobs.set_aside import command, kept_words, set_aside, share_of
from coordinator.ui.exit_codes import EXIT_REFUSED
from coordinator.ui.options import client_options, is_confirmed, json_option
from coordinator.ui.several import Choice, change, choosing, yes_option
from coordinator.ui.words import print_json, say, short, tell_of_namesakes

if TYPE_CHECKING:
    from coordinator.client.client import OperatorClient


@click.command("requeue")
@choosing
@yes_option
@json_option
@client_options
def requeue_command(client: OperatorClient, choice: Choice, yes: bool, as_json: bool) -> int:
    """Put jobs back into the queue, from any state but pending; what runs is stopped.

    Each is trained from the beginning, with fresh retries and losses: a checkpoint that was kept is
    left aside. Only a result that came after the job was given up is taken as it is.

    The result of a completed job is set aside: `fleet get JOB --attempt N` fetches it as long as it
    is kept, and `fleet show` lists it. On a terminal that is asked first, as is whether a job that
    runs is to begin again.

    Of several jobs it asks once, and tells what came of each. What --status and --model choose has
    to be confirmed, in a script by --yes; of jobs that no manifest names any more, none is chosen.

    \b
    Examples:
      fleet requeue mlp-oracle
      fleet requeue mlp-oracle gru-oracle
      fleet requeue --status failed
    """  # noqa: D301 - \b is click's
    if choice.only is None:
        return change(client, "requeue", choice, yes=yes, as_json=as_json)
    job = choice.only
    if not yes and sys.stdin.isatty() and not _is_meant(client, job, as_json=as_json):
        return EXIT_REFUSED
    expires_at = time.time() + client.timeout_s
    data = client.ask(AskRequeue(id=new_id(), job=job, expires_at=expires_at))
    tell_of_namesakes(data, job)
    if as_json:
        print_json(data)
        return 0
    told = f"{data['name']} ({data['job_id'][:12]}) is {data['state']}"
    lost = data.get("set_aside")  # a coordinator of another version does not tell
    say(printable(f"{told}; {lost}" if lost else told))
    if lost and data.get("artifact_id"):
        job = short(data["job_id"]) if data["others"] else data["name"]
        kept = kept_words(data["keep_results_s"])
        say(printable(f"{command(job, data['attempt'])} fetches it, {kept}"), err=True)
    return 0


def _is_meant(client: OperatorClient, job: str, *, as_json: bool) -> bool:
    """Ask whoever would lose something by it, by the job as it is now."""
    row = client.ask(AskShow(id=new_id(), job=job))
    tell_of_namesakes(row, job)
    lost = set_aside(
        row["state"], row["host"], share_of(row), row["metrics"], row["artifact_id"]
    )  # fmt: skip
    if not lost:
        return True
    keeps = ""
    if row["state"] == "completed":
        keeps = f", and kept {kept_words(row['keep_results_s'])}"
    say(printable(f"{row['name']} is {row['state']}; requeued, {lost}{keeps}"), err=True)
    return is_confirmed(f"Requeue {printable(row['name'])}?", as_json=as_json)
