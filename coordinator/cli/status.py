"""`fleet status`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from broker.machine import new_id
from broker.messages import AskStatus
from coordinator.cli.views import View, viewing

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
@viewing
def status_command(client: OperatorClient) -> View:
    """How many jobs and hosts are in which state.

    \b
    Examples:
      fleet status
      fleet status --json --watch
    """  # noqa: D301 - \b is click's
    return View(lambda: client.ask(AskStatus(id=new_id())), _draw)


def _draw(data: dict[str, Any]) -> Iterator[Any]:
    from coordinator.cli import render

    who = data["coordinator"]
    since = render.ago(who["started_at"])
    yield f"Coordinator  {who['host']}, version {who['version']}, since {since}"
    yield f"Broker       {data['broker']['address']}"
    yield f"Manifest     {who['manifest'] or 'none'}"
    if who["manifest_fault"]:
        said = render.Text("             ").append("has errors", "red")
        said.append(render.printable(f", the last good plan goes on: {who['manifest_fault']}"))
        yield render.Line(said, indent=13)
    for title, counts in (("Jobs", data["jobs"]), ("Hosts", data["hosts"])):
        line = render.Text(f"{title:<13}")
        shown = [(name, count) for name, count in counts.items() if count]
        for index, (name, count) in enumerate(shown):
            line.append(", " if index else "")
            line.append(f"{count} ").append(render.state(name))
        yield render.Line(line if shown else f"{title:<13}none", indent=13)
    if data["jobs"].get("pending") and not data["active"] and not data["runnable"]:
        yield "\nNothing that is pending can start; `fleet why JOB` says why."
    if data["dropped"]:
        found = ", ".join(f"{count} on {kind}" for kind, count in data["dropped"].items())
        yield f"Dropped      {found} (messages that made no sense)"
    if data["refused"]:
        found = ", ".join(
            f"{count} {_WHY.get(kind, kind)}" for kind, count in data["refused"].items()
        )
        yield f"Refused      {found}; see `fleet events`"
