"""`fleet show`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from broker.protocol.messages import AskShow
from broker.system.machine import new_id
from coordinator.ui.live import View, viewing
from coordinator.ui.options import OperatorClient
from coordinator.ui.several import Choice, choosing, exit_code, one_by_one


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

    def draw_one(row: dict[str, Any]) -> Iterator[Any]:
        from coordinator.cli.job_lines import in_lines  # loads rich, which completion does not need

        return in_lines(row)

    def draw(rows: list[dict[str, Any]]) -> Iterator[Any]:
        if not rows:
            yield choice.none()
        for number, row in enumerate(rows):
            yield from [""] if number else []
            yield from draw_one(row) if row["ok"] else [f"error: {row['message']}"]

    if (only := choice.only) is not None:
        return View(lambda: ask(only), draw_one)
    return View(lambda: [*one_by_one(choice.asked(client, "show"), ask)], draw, exit_code)
