"""`fleet list` and `fleet workers`: the jobs, and the hosts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import click

from broker.figures import some, span
from broker.system.machine import system_clock
from coordinator.client.mirror import Mirror
from coordinator.client.rows import Row, listed, worker
from coordinator.jobs.host_condition import Condition
from coordinator.jobs.reason_words import away, words
from coordinator.jobs.result_words import mark_words
from coordinator.jobs.waiting_words import held_up, no_room
from coordinator.ui import terminal
from coordinator.ui.fleet_columns import HOSTS, JOBS, shown
from coordinator.ui.live import View, viewing
from coordinator.ui.options import OperatorClient
from coordinator.ui.several import Choice, model_option, status_option
from coordinator.ui.words import by_row, short

NEAR_S: Final = 30 * 86_400.0
NAMED: Final = 5  # jobs of one line


@click.command("list")
@status_option
@model_option
@viewing
def list_command(client: OperatorClient, states: tuple[str, ...], models: tuple[str, ...]) -> View:
    """The jobs: what runs, what waits, next to be claimed first, what is over, newest first.

    A wider window shows more of each; a column that says nothing of any is left out.

    TOOK is how long the trainer of the newest attempt ran, without the wait for its report (where
    nobody has measured it: until its end was heard of); TRY counts the attempts. What all of them
    took together: `fleet show JOB`.

    \b
    Examples:
      fleet list --status running --status failed
      fleet list --model gbt
      fleet list --watch
    """  # noqa: D301 - \b is click's

    def draw(rows: list[dict[str, Any]]) -> Iterator[Any]:
        if rows:
            yield from _draw_jobs(rows)
        else:
            yield Choice((), states, models).none()

    return View(lambda: sorted(client.list_jobs(states, models), key=by_row), draw)


def _draw_jobs(rows: list[dict[str, Any]]) -> Iterator[Any]:
    now_s = time.time()
    yield terminal.fleet_table(shown(JOBS, "list"), [listed(row, now_s) for row in rows])
    asked_for = [row["name"] for row in rows if row.get("submitted_by")]
    if asked_for:
        yield f"by `fleet run`, not in the manifest: {some(asked_for, NAMED)}"
    orphans = sum(not row["in_plan"] for row in rows)
    if orphans:
        yield f"*: {orphans} no longer in the manifest, and given to no host any more"
    if names := [row["name"] for row in rows if row.get("unplaceable")]:
        yield terminal.unplaceable(names, len(names))
    yield from terminal.waiting(rows)
    if waits := [row for row in rows if row.get("awaits_cuda_s")]:
        yield terminal.awaiting_cuda(waits)
    planned = {row["name"] for row in rows if row["in_plan"]}
    for row in rows:
        if not row["in_plan"] and row["name"] in planned:
            old = short(row["job_id"])
            yield f"{row['name']} means the job of the manifest; that with * is {old}"
    for row in rows:
        yield from (f"{row['name']}: {told}" for told in _beside(row))


def _beside(row: dict[str, Any]) -> Iterator[str]:
    """Yield what is to be said of a job beside its row."""
    if marks := row.get("marks"):
        yield mark_words(marks, row["metrics"])
    if row.get("away"):
        yield away(row["away"])
    if lack := row.get("no_room"):
        yield f"its result {no_room(lack)}"
    if fault := (row.get("held") or {}).get("fault"):
        yield f"it {held_up(row['host'], fault)}"
    if row["state"] == "failed":
        yield terminal.first_line(row["error"], 300)


@click.command("workers")
@viewing
def workers_command(client: OperatorClient) -> View:
    """The hosts: how each is, what it does, how much of it is in use.

    A wider window shows more of each, also what its owner or the manifest describes it as; a column
    that says nothing of any is left out. --json has all of it.

    \b
    Examples:
      fleet workers
      fleet workers --watch
      fleet workers --json
    """  # noqa: D301 - \b is click's
    return View(client.list_workers, _draw_hosts)


def _draw_hosts(rows: list[dict[str, Any]]) -> Iterator[Any]:
    if not rows:
        yield "no hosts; start an agent on each with `fleet agent --data DIR`"
        return
    yield terminal.fleet_table(shown(HOSTS, "list"), _in_short(rows))
    for row in rows:
        for why in [*map(words, row["barred"]), *_twins(row), *_near_its_end(row)]:
            yield terminal.Line(f"{row['host']}: {why}", style="yellow")


def _in_short(rows: Iterable[dict[str, Any]]) -> Iterator[Row]:
    """Yield the rows of the table; below it is told in full why a host is given no jobs."""
    mirror, now = Mirror(), system_clock()
    # To look through the trainers takes fifty times what the rest of a host does.
    mirror.load_hosts(
        row | {"capability": row["capability"] and row["capability"] | {"trainers": {}}}
        for row in rows
    )
    for host in mirror.hosts.values():
        row = worker(host, now)
        # One without prepared data takes jobs that bring theirs.
        is_barred = row["barred"] and row["state"] != Condition.NO_DATA
        yield row | {"barred": "takes no jobs" if is_barred else ""}


def _twins(row: dict[str, Any]) -> list[str]:
    if row["presence"] != "twins":
        return []
    said = "two agents use its name; start one of them with another --host"
    if (row["capability"] or {}).get("certificate_expires_at"):
        said = "two agents use its certificate; `fleet enroll` another name for one of them"
    if alone_in_s := row.get("alone_in_s"):
        said += f"; clears in {span(alone_in_s)} once one of them has gone"
    return [said]


def _near_its_end(row: dict[str, Any]) -> list[str]:
    """Say when a host's certificate ends, if that is soon: a column for it would be in the way."""
    ends = str((row["capability"] or {}).get("certificate_expires_at"))
    try:
        end = datetime.fromisoformat(ends)
        left_s = (end - datetime.now(UTC)).total_seconds()
    except (TypeError, ValueError):  # none, or none that one can read, as without its zone
        return []
    if left_s > NEAR_S:
        return []
    day = end.astimezone().date()
    if left_s <= 0:
        return [f"its certificate ended on {day}; `fleet enroll {row['host']} --replace`"]
    return [f"its certificate ends on {day}, in {span(left_s)}"]
