"""`fleet logs`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from broker.errors import BadMessage
from broker.machine import new_id
from broker.messages import JOB_ROW, AskLogs, decode
from broker.topics import Kind, Topics
from coordinator.cli import printable
from coordinator.cli.common import (
    job_argument,
    json_option,
    timeout_option,
    where,
    where_options,
)

if TYPE_CHECKING:
    from coordinator.cli.client import OperatorClient

_FINAL = frozenset({"completed", "failed", "cancelled"})


@click.command("logs")
@job_argument
@click.option("--follow", "-f", is_flag=True, help="Go on printing until the job is over.")
@click.option("--lines", "-n", type=click.IntRange(1, 5000), default=200, show_default=True,
              metavar="N", help="How many of the last lines.")  # fmt: skip
@timeout_option
@json_option
@where_options
def logs_command(
    job: str,
    follow: bool,
    lines: int,
    timeout: float,
    as_json: bool,
    **at: Any,
) -> None:
    """The output of a job's newest attempt.

    With --follow, JSON is one object a line.

    Example: fleet logs gbt-oracle --follow
    """
    from coordinator.cli.client import OperatorClient

    settings = where(**at)
    topics = Topics(settings.topic_root)
    watch = [topics.log("+", "+"), topics.job("+")] if follow else []
    with OperatorClient(settings, timeout, watch=watch) as client:
        data = client.ask(AskLogs(id=new_id(), job=job, lines=lines))
        if as_json and not follow:
            from coordinator.cli import render

            render.print_json(data)
            return
        say = _say_json if as_json else _say
        for line in data["lines"]:
            say(line)
        if not data["lines"] and not follow:
            click.echo("it has put nothing out yet", err=True)
        if follow:
            _follow(client, data["job_id"], data["lines"], say)


def _say(line: str) -> None:
    click.echo(printable(line))


def _say_json(line: str) -> None:
    click.echo(json.dumps({"line": line}, ensure_ascii=False))


def _is_over(payload: bytes) -> bool:
    try:
        return decode(JOB_ROW, payload).state in _FINAL
    except BadMessage:
        return False


def _follow(
    client: OperatorClient, job_id: str, shown: list[str], say: Callable[[str], None]
) -> None:
    try:
        over = False
        while not over:
            lines = []
            for topic, payload in client.messages(wait_s=60.0):
                if topic.job_id == job_id and topic.kind is Kind.LOG:
                    lines.append(payload.decode("utf-8", "replace"))
                elif topic.job_id == job_id and topic.kind is Kind.JOB:
                    over = _is_over(payload)
            for line in lines[overlap(shown, lines) :]:
                say(line)
            shown = []
    except KeyboardInterrupt:
        return


def overlap(shown: Sequence[str], lines: Sequence[str]) -> int:
    """Return how many of the first `lines` are the last that were shown.

    What a job says while its log is asked for comes twice: in the answer, and by itself.
    """
    longest = min(len(shown), len(lines))
    return next((n for n in range(longest, 0, -1) if list(shown[-n:]) == list(lines[:n])), 0)
