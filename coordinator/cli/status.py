"""`fleet status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from broker.errors import RemoteError
from broker.machine import new_id
from broker.messages import AskStatus
from coordinator.cli import NotDone, Unreachable
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
    "report": "reports about a job that is not their host's",
}


@click.command("status")
@json_option
@client_options
def status_command(client: OperatorClient, as_json: bool) -> None:
    """How many jobs and hosts are in which state.

    Example: fleet status --json
    """
    data = client.ask(AskStatus(id=new_id()))
    outlook = _outlook(client, data)
    from coordinator.cli import render

    if as_json:
        data["forecast"] = outlook
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
    if outlook is not None and outlook["text"]:
        from coordinator.cli.outlook import say

        say(out, render.Text(f"{'Outlook':<13}").append(outlook["text"]))
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


def _outlook(client: OperatorClient, data: dict[str, Any]) -> dict[str, Any] | None:
    """Return what is to be expected of the plan; none where nothing is left, a hint if too much."""
    left = data["active"] + data["jobs"]["pending"]
    if not left:
        return None
    from datetime import UTC, datetime

    from coordinator.cli import outlook

    if left > outlook.BY_THE_WAY:
        return {"text": f"{left} jobs are left; `fleet plan` takes the time to predict them"}
    try:
        found = outlook.look(client).forecast()
    except (NotDone, RemoteError, Unreachable):
        return None  # the coordinator is of another version: the counts are what was asked for
    return outlook.summary_to_dict(found, datetime.now(UTC))
