"""`fleet status`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from broker.machine import new_id
from broker.messages import AskStatus
from coordinator.cli import printable
from coordinator.cli.common import client_options, json_option

if TYPE_CHECKING:
    from coordinator.cli.client import OperatorClient


_WHY = {
    "unsigned": "unsigned",
    "signature": "with a wrong signature",
    "stale": "signed too long ago, or in the future",
    "rights": "by users who may only look",
    "expired": "after their expiry",
    "too many": "of too many at once",
    "revoked": "messages of hosts whose certificates were revoked",
    "report": "reports about a job that is not their host's",
}


# What the broker calls its reasons (`broker.embedded.Reason`), in words.
_BY_BROKER = {
    "tls": "without a certificate of the fleet",
    "timeout": "too slow to connect",
    "crowd": "over the number of connections",
    "nobody": "with a name that is nobody's",
    "revoked": "with a revoked certificate",
    "expired": "with a certificate that ended",
    "connect": "with a connect that made no sense",
    "will": "with a will on another's topic",
    "malformed": "with a packet that made no sense",
    "oversize": "with a packet too large",
    "publish": "publishing where they may not",
    "subscribe": "subscribing to what they may not read",
    "retained": "retaining too much",
    "silent": "silent for too long",
    "slow": "too slow to read",
}


@click.command("status")
@json_option
@client_options
def status_command(client: OperatorClient, as_json: bool) -> None:
    """How many jobs and hosts are in which state.

    Example: fleet status --json
    """
    data = client.ask(AskStatus(id=new_id()))
    from coordinator.cli import render

    if as_json:
        render.print_json(data)
        return
    out = render.console()
    who = data["coordinator"]
    out.print(f"Coordinator  {who['host']}, version {who['version']}, since ", end="")
    out.print(render.ago(who["started_at"]))
    out.print(f"Broker       {data['broker']['address']}")
    out.print(f"Manifest     {who['manifest'] or 'none'}")
    for title, counts in (("Jobs", data["jobs"]), ("Hosts", data["hosts"])):
        line = render.Text(f"{title:<13}")
        shown = [(name, count) for name, count in counts.items() if count]
        for index, (name, count) in enumerate(shown):
            line.append(", " if index else "")
            line.append(f"{count} ").append(render.state(name))
        out.print(line if shown else render.Text(f"{title:<13}none"))
    if data["jobs"].get("pending") and not data["active"] and not data["runnable"]:
        out.print("\nNothing that is pending can start; `fleet why JOB` says why.")
    if data["dropped"]:
        found = ", ".join(f"{count} on {kind}" for kind, count in data["dropped"].items())
        out.print(f"Dropped      {found} (messages that made no sense)")
    if data["refused"]:
        found = ", ".join(
            f"{count} {_WHY.get(kind, kind)}" for kind, count in data["refused"].items()
        )
        out.print(f"Refused      {found}; see `fleet events`")
    if at_door := data["broker"].get("refused"):
        found = ", ".join(
            f"{count} {_BY_BROKER.get(kind, printable(kind))}" for kind, count in at_door.items()
        )
        out.print(f"By broker    {found}; its log tells more")
