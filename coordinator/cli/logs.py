"""`fleet logs`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from broker.errors import BadMessage
from broker.machine import new_id
from broker.messages import JOB_ROW, AskLogs, decode
from broker.settings import BrokerSettings
from broker.topics import Kind, Topics
from coordinator.cli.common import job_argument, json_option, where_options

_FINAL = frozenset({"completed", "failed", "cancelled"})


@click.command("logs")
@job_argument
@click.option("--follow", "-f", is_flag=True, help="Go on printing until the job is over.")
@click.option("--lines", "-n", type=click.IntRange(1, 5000), default=200, show_default=True)
@click.option("--timeout", type=click.FloatRange(0.1, 3600), default=5.0, show_default=True)
@json_option
@where_options
def logs_command(
    job: str,
    follow: bool,
    lines: int,
    timeout: float,
    as_json: bool,
    broker: str | None,
    root: str | None,
    config: Path | None,
) -> None:
    """The output of a job's newest attempt.

    Example: fleet logs gbt-oracle --follow
    """
    from coordinator.cli.client import OperatorClient

    settings = BrokerSettings.load(config, {"url": broker, "topic_root": root})
    topics = Topics(settings.topic_root)
    watch = [topics.log("+", "+"), topics.job("+")] if follow else []
    with OperatorClient(settings, timeout, watch=watch) as client:
        data = client.ask(AskLogs(id=new_id(), job=job, lines=lines))
        if as_json:
            from coordinator.cli import render

            render.print_json(data)
            return
        for line in data["lines"]:
            click.echo(line)
        if follow:
            _follow(client, data["job_id"])


def _is_over(payload: bytes) -> bool:
    try:
        return decode(JOB_ROW, payload).state in _FINAL
    except BadMessage:
        return False


def _follow(client: Any, job_id: str) -> None:
    try:
        while True:
            for topic, payload in client.messages(wait_s=60.0):
                if topic.job_id != job_id:
                    continue
                if topic.kind is Kind.LOG:
                    click.echo(payload.decode("utf-8", "replace"))
                elif topic.kind is Kind.JOB and _is_over(payload):
                    return
    except KeyboardInterrupt:
        return
