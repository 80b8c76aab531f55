"""`fleet stats`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final

import click

from broker.clock import rfc3339
from broker.protocol.messages import AskAttempts
from broker.system.machine import new_id
from coordinator.cli.events import moment
from coordinator.client.predictions import attempts
from coordinator.ui import terminal
from coordinator.ui.fitted_table import Column, Table
from coordinator.ui.live import View, viewing
from coordinator.ui.options import OperatorClient, option

KEYS: Final = ("host", "model", "day")
_FIGURES: Final = [
    Column(title, right=True)
    for title in ("HOURS", "DONE", "FAILED", "LOST", "STOPPED", "SUCCESS", "MEDIAN")
]
ENDS: Final = ("completed", "failed", "lost", "released", "cancelled")


@dataclass(slots=True)
class Account:
    """What is added up of one host, model or day. `took_s` are whole, completed attempts."""

    attempts: Counter[str] = field(default_factory=Counter)
    jobs: Counter[str] = field(default_factory=Counter)
    ran_s: float = 0.0
    took_s: list[float] = field(default_factory=list)

    def add(self, one: Mapping[str, Any]) -> None:
        """Add an attempt that has ended."""
        if one["host"] is not None:
            self.attempts[one["end"]] += 1
        if one["over"] is not None:
            self.jobs[one["over"]] += 1
        self.ran_s += one["s"] or 0.0
        if one["whole"] and one["end"] == "completed" and one["s"] is not None:
            self.took_s.append(one["s"])

    def success(self) -> float | None:
        """Return which share of the attempts that came to an end by themselves was completed."""
        ended = sum(self.attempts[end] for end in ("completed", "failed", "lost"))
        return self.attempts["completed"] / ended if ended else None

    def median_s(self) -> float | None:
        """Return how long a completed attempt takes, none where there was none."""
        from coordinator.scheduler.estimates import quantile

        return quantile(sorted(self.took_s), 0.5) if self.took_s else None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        success, median_s = self.success(), self.median_s()
        return {
            "hours": round(self.ran_s / 3600, 4),
            "attempts": {end: self.attempts[end] for end in ENDS},
            "jobs": {state: self.jobs[state] for state in ("completed", "failed", "cancelled")},
            "success": None if success is None else round(success, 4),
            "median_s": None if median_s is None else round(median_s, 1),
        }


@click.command("stats")
@click.option("--by", "keys", type=click.Choice(KEYS), multiple=True,
              help="Add up by this only; may be repeated.  [default: host, model]")  # fmt: skip
@option("--since", "TIME", "So long ago (90s, 30m, 1h, 7d, 2w), or a local time.",
        callback=moment, default="30d", show_default=True)  # fmt: skip
@viewing
def stats_command(client: OperatorClient, keys: tuple[str, ...], since: float) -> View:
    """What the fleet has done: hours of training, how jobs ended, how long they take.

    An attempt counts when and where it ended, for as long as its trainer ran. SUCCESS: of the
    attempts that were not stopped by somebody, the share that was completed. MEDIAN: of a completed
    attempt that was begun anew.

    A job that was requeued after it had ended counts with each of its endings.

    Example: fleet stats --by day --since 2w
    """
    return View(lambda: _read(client, keys or ("host", "model"), since), partial(_draw, since))


def _read(client: OperatorClient, keys: Sequence[str], since_s: float) -> dict[str, Any]:
    rows = attempts(client, AskAttempts(id=new_id(), since=since_s))
    total, by = account(rows, keys)
    groups = {
        key: [{key: name, **one.to_dict()} for name, one in found] for key, found in by.items()
    }
    return {"since": rfc3339(since_s), "total": total.to_dict(), "by": groups}


def _draw(since_s: float, data: dict[str, Any]) -> Iterator[Any]:
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(since_s))
    total = data["total"]
    if not any([*total["attempts"].values(), *total["jobs"].values()]):
        yield f"nothing has ended since {since}; --since looks further back"
        return
    digits = 3 if total["hours"] < 10 else 2
    for key, rows in data["by"].items():
        cells = [_cells(row[key], row, f"{row['hours']:.{digits}f}") for row in rows]
        yield Table((Column(key.upper(), least=12), *_FIGURES), cells)
        yield ""
    over = [f"{count} {state}" for state, count in total["jobs"].items() if count]
    jobs = ", ".join(over) or "none"
    hours_in_all = f"{total['hours']:.{digits}f} h of training"
    yield f"Since {since}: {hours_in_all}; endings of jobs: {jobs}"


def account(
    rows: Iterable[Mapping[str, Any]], keys: Iterable[str]
) -> tuple[Account, dict[str, list[tuple[str, Account]]]]:
    """Add attempts up: in all, and by each key, most hours first (days in their order)."""
    total = Account()
    by: dict[str, dict[str, Account]] = {key: {} for key in keys}
    for one in rows:
        total.add(one)
        day = f"{datetime.fromisoformat(one['at']).astimezone():%Y-%m-%d}"
        for key, found in by.items():
            name = day if key == "day" else one[key]
            if one["host"] is not None and name is not None:
                found.setdefault(name, Account()).add(one)
    return total, {
        key: sorted(found.items(), key=lambda one: (0.0 if key == "day" else -one[1].ran_s, one[0]))
        for key, found in by.items()
    }


def _cells(name: str, one: Mapping[str, Any], hours: str) -> tuple[Any, ...]:
    attempts, success, median_s = one["attempts"], one["success"], one["median_s"]
    return (
        name,
        hours,
        attempts["completed"],
        attempts["failed"],
        attempts["lost"],
        attempts["released"] + attempts["cancelled"],
        "-" if success is None else f"{success:.0%}",
        "-" if median_s is None else terminal.span(median_s),
    )
