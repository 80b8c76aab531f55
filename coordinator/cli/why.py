"""`fleet why`."""

from __future__ import annotations

import click

from coordinator.ui.candidates import job_argument
from coordinator.ui.live import View, viewing
from coordinator.ui.options import OperatorClient


@click.command("why")
@job_argument
@viewing
def why_command(client: OperatorClient, job: str) -> View:
    """Why a job is not running: clause by clause, host by host, and what would help.

    RULES OUT: how many hosts a condition excludes; LEAVES: how many it and those above it leave.
    When the job is likely to start or end is predicted from what has been measured; see
    docs/explanation/forecast.md.

    \b
    Examples:
      fleet why gru-oracle
      fleet why gru-oracle --watch
    """  # noqa: D301 - \b is click's
    from coordinator.cli import why_lines  # loads rich, which completion does not need

    return View(lambda: why_lines.read(client, job), why_lines.in_lines, to_json=why_lines.to_json)
