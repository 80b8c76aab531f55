"""`fleet show`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from broker.figures import is_figure
from broker.protocol.messages import AskShow
from broker.system.machine import new_id
from coordinator.client.rows import listed
from coordinator.jobs.reason_words import moment
from coordinator.jobs.result_words import command, metric_words
from coordinator.ui import terminal
from coordinator.ui.fleet_columns import took
from coordinator.ui.job_view import facts, history
from coordinator.ui.live import View, viewing
from coordinator.ui.options import OperatorClient
from coordinator.ui.several import Choice, choosing, exit_code, one_by_one

_TITLE = 12  # characters
MAX_ASIDE = 10


@click.command("show")
@choosing
@viewing
def show_command(client: OperatorClient, choice: Choice) -> View:
    """One job, or several: spec, result and history.

    JOB is a name, an id, or the start of one that fits no other. `Took` names what all attempts in
    the history took together, where there were several. Results that a requeue has set aside are
    listed with the command that fetches each, and until when they are kept.

    \b
    Examples:
      fleet show gbt-realistic
      fleet show gbt-realistic --watch
      fleet show --status failed
    """  # noqa: D301 - \b is click's

    def ask(job: str) -> dict[str, Any]:
        return dict(client.ask(AskShow(id=new_id(), job=job)))

    def draw(rows: list[dict[str, Any]]) -> Iterator[Any]:
        if not rows:
            yield choice.none()
        for number, row in enumerate(rows):
            yield from [""] if number else []
            yield from _draw(row) if row["ok"] else [f"error: {row['message']}"]

    if (only := choice.only) is not None:
        return View(lambda: ask(only), _draw)
    return View(lambda: [*one_by_one(choice.asked(client, "show"), ask)], draw, exit_code)


def _draw(data: dict[str, Any]) -> Iterator[Any]:
    for title, value in facts(data, listed(data, time.time()), _took(data)):
        line = terminal.Text(f"{title:<{_TITLE}}")
        shown = value if isinstance(value, terminal.Text) else terminal.printable(value)
        yield terminal.Line(line.append(shown), indent=_TITLE)
    if (data["metrics"] or {}).keys() - {"marks"}:  # the state tells these
        yield "\nMetrics"
        for name, value in data["metrics"].items():
            if not name.endswith("_ci") and is_figure(value):
                yield f"  {name:<20} {terminal.figure(data['metrics'], name)}"
            elif value is None:
                yield f"  {name:<20} missing: no finite number"
    if aside := [one for one in data["results"] if one["set_aside_at"]]:
        yield "\nSet aside"
        yield from _set_aside(data, aside)
    yield "\nHistory"
    yield history(data["events"])


def _set_aside(data: dict[str, Any], results: list[dict[str, Any]]) -> Iterator[Any]:
    """Tell of results that a requeue has taken from the job, the newest first, each in a line."""
    job = terminal.short(data["job_id"]) if data["others"] else data["name"]
    for one in reversed(results[-MAX_ASIDE:]):
        said = [metric] if (metric := metric_words(one["metrics"])) else []
        said += [terminal.size(one["size_bytes"])] if one["size_bytes"] is not None else []
        if not one["is_there"]:
            said.append("deleted")
        elif one["kept_until"] is None:
            said.append("which the job has again")
        else:
            how = command(job, one["attempt"])
            said.append(f"kept until {moment(one['kept_until'])}: {how}")
        came = moment(one["at"])
        yield terminal.Line(f"  attempt {one['attempt']}, of {came}: {', '.join(said)}")
    if len(results) > MAX_ASIDE:
        yield f"  and {len(results) - MAX_ASIDE} earlier (--json has them)"


def _took(data: dict[str, Any]) -> str:
    """Return how long all attempts in the history ran, where that is not the newest alone."""
    ran = _ran_s(data["events"])
    newest = took(listed(data, time.time()))
    if not ran or (len(ran) == 1 and newest):
        return newest
    in_all = terminal.span(sum(ran.values()))
    if len(ran) == 1:
        return f"{in_all} the attempt before"
    newest = f"{newest} the newest attempt, " if newest else ""
    return f"{newest}{in_all} all {len(ran)} together"


def _ran_s(events: list[dict[str, Any]]) -> dict[int, float]:
    """Return how long each attempt ran: as its agent measured it, else from start to end."""
    ran: dict[int, float] = {}
    begun: dict[int, datetime] = {}
    for event in events:
        at, attempt = datetime.fromisoformat(event["at"]), event["attempt"]
        if event["ran_s"] is not None:
            begun.pop(attempt, None)
            ran[attempt] = event["ran_s"]
        elif event["from"] == event["to"]:
            continue
        elif attempt in begun:
            ran[attempt] = max(0.0, (at - begun.pop(attempt)).total_seconds())
        if event["to"] == "running" != event["from"]:
            begun[attempt] = at
    now = datetime.now(UTC)
    return ran | {one: max(0.0, (now - at).total_seconds()) for one, at in begun.items()}
