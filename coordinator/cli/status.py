"""`fleet status`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from broker.errors import RemoteError
from broker.machine import new_id
from broker.messages import AskStatus
from coordinator.cli import NotDone, Unreachable, printable
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
    "websocket": "with a websocket that made no sense, or of another site's page",
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
    return View(lambda: _read(client), _draw)


def _read(client: OperatorClient) -> dict[str, Any]:
    data: dict[str, Any] = client.ask(AskStatus(id=new_id()))
    data["forecast"] = _outlook(client, data)
    return data


def _draw(data: dict[str, Any]) -> Iterator[Any]:
    from coordinator.cli import holds, render

    yield from holds.paused(data)
    who = data["coordinator"]
    started = render.ago(who["started_at"])
    yield f"Coordinator  {who['host']}, version {who['version']}, started {started}"
    yield f"Broker       {data['broker']['address']}"
    if strain := (data["broker"].get("load") or {}).get("strain"):
        said = render.Text("             ").append(render.printable(strain), "yellow")
        yield render.Line(said, indent=13)
    yield render.Line(f"Manifest     {who['manifest'] or 'none'}", indent=13)
    if who["manifest_fault"]:
        said = render.Text("             ").append("has errors", "red")
        said.append(render.printable(f", the last good plan goes on: {who['manifest_fault']}"))
        yield render.Line(said, indent=13)
    elif changed := who.get("manifest_changed"):
        said = render.Text(f"{'':13}{render.told(changed)}, and not read since; ", "yellow")
        yield render.Line(said.append("`fleet reload` reads it", "yellow"), indent=13)
    yield from holds.disk(data)
    for title, counts in (("Jobs", data["jobs"]), ("Hosts", data["hosts"])):
        line = render.Text(f"{title:<13}")
        shown = [(name, count) for name, count in counts.items() if count]
        for index, (name, count) in enumerate(shown):
            line.append(", " if index else "")
            line.append(f"{count} ").append(render.state(name))
        yield render.Line(line if shown else f"{title:<13}none", indent=13)
    yield from holds.orphaned(data)
    yield from holds.unplaceable(data)
    yield from holds.restrained(data)
    yield from holds.away(data)
    if data["forecast"] is not None and data["forecast"]["text"]:
        yield render.Line(f"{'Outlook':<13}{data['forecast']['text']}", indent=13)
    if data["jobs"].get("pending") and not data["active"] and not data["runnable"]:
        yield f"\n{_why_nothing_starts(data)}"
    if data["dropped"]:
        found = ", ".join(f"{count} on {kind}" for kind, count in data["dropped"].items())
        yield f"Dropped      {found} (messages that made no sense)"
    if data["refused"]:
        found = ", ".join(
            f"{count} {_WHY.get(kind, kind)}" for kind, count in data["refused"].items()
        )
        yield f"Refused      {found}; see `fleet events`"
    if at_door := data["broker"].get("refused"):
        found = ", ".join(
            f"{count} {_BY_BROKER.get(kind, printable(kind))}" for kind, count in at_door.items()
        )
        yield f"By broker    {found}; its log tells more"


def _why_nothing_starts(data: dict[str, Any]) -> str:
    if not sum(data["hosts"].values()):
        return "No host is known, so nothing can start: start an agent on each machine."
    if starting := data.get("starting"):
        from coordinator.cli import outlook

        return f"Nothing that is pending can start yet: {outlook.starting(starting)}."
    return "Nothing that is pending can start; `fleet why JOB` says why."


def _outlook(client: OperatorClient, data: dict[str, Any]) -> dict[str, Any] | None:
    """Return what is to be expected of the plan; none where nothing is left, a hint if too much."""
    left = data["active"] + data["jobs"]["pending"]
    if not left:
        return None
    from datetime import UTC, datetime

    from coordinator.cli import outlook

    if left > outlook.BY_THE_WAY:
        return {"text": f"{left} jobs are left; `fleet plan` takes the time to predict them"}
    known = sum(data["hosts"].values())
    if known > outlook.HOSTS_BY_THE_WAY:
        text = (
            f"{left} jobs are left for {known} hosts; `fleet plan` takes the time to predict them"
        )
        return {"text": text}
    try:
        found = outlook.look(client).forecast()
    except (NotDone, RemoteError, Unreachable):
        return None  # the coordinator is of another version: the counts are what was asked for
    return outlook.summary_to_dict(found, datetime.now(UTC), data.get("starting", 0))
