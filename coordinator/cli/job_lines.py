"""One job in lines, for `fleet show`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from broker.figures import size
from coordinator.client.rows import listed
from coordinator.jobs.reason_words import moment
from coordinator.jobs.result_words import command, metric_words
from coordinator.ui import facts, job_view, terminal
from coordinator.ui.fleet_columns import took

MAX_ASIDE = 10


def in_lines(data: dict[str, Any]) -> Iterator[Any]:
    """Yield the lines and tables of an answer to `show`."""
    yield from facts.in_lines(job_view.facts(data, listed(data, time.time()), took_in_all(data)))
    if metrics := job_view.metrics(data["metrics"]):
        yield "\nMetrics"
    yield from (f"  {name:<20} {value}" for name, value in metrics)
    if aside := [one for one in data["results"] if one["set_aside_at"]]:
        yield "\nSet aside"
        yield from set_aside(data, aside)
    yield "\nHistory"
    yield job_view.history(data["events"])


def set_aside(data: dict[str, Any], results: list[dict[str, Any]]) -> Iterator[Any]:
    """Tell of results that a requeue has taken from the job, the newest first, each in a line."""
    job = terminal.short(data["job_id"]) if data["others"] else data["name"]
    for one in reversed(results[-MAX_ASIDE:]):
        said = [metric] if (metric := metric_words(one["metrics"])) else []
        said += [size(one["size_bytes"])] if one["size_bytes"] is not None else []
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


def took_in_all(data: dict[str, Any]) -> str:
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
