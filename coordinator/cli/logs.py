"""`fleet logs`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from broker.errors import BadMessage
from broker.loglines import decode_lines, missing
from broker.machine import new_id
from broker.messages import JOB_ROW, AskLogs, decode
from broker.topics import Kind, Topic, Topics
from coordinator.cli import printable
from coordinator.cli.common import (
    job_argument,
    json_option,
    timeout_option,
    where,
    where_options,
)
from coordinator.cli.follow import FINAL
from coordinator.cli.words import tell_of_namesakes

if TYPE_CHECKING:
    from coordinator.cli.client import OperatorClient


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

    Where lines are missing, since the host or the coordinator was cut off for long, a line says how
    many. With --follow, JSON is one object a line.

    Example: fleet logs gbt-oracle --follow
    """
    from coordinator.cli.client import OperatorClient

    settings = where(**at)
    topics = Topics(settings.topic_root)
    watch = [topics.log("+", "+"), topics.job("+")] if follow else []
    with OperatorClient(settings, timeout, watch=watch) as client:
        data = client.ask(AskLogs(id=new_id(), job=job, lines=lines))
        tell_of_namesakes(data, job)
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
            _follow(client, Follower(data["job_id"], data["attempt"], data["last"]), say)


def _say(line: str) -> None:
    click.echo(printable(line))


def _say_json(line: str) -> None:
    click.echo(json.dumps({"line": line}, ensure_ascii=False))


def _is_over(payload: bytes) -> bool:
    try:
        return decode(JOB_ROW, payload).state in FINAL
    except BadMessage:
        return False


def _follow(client: OperatorClient, follower: Follower, say: Callable[[str], None]) -> None:
    try:
        while not follower.is_over:
            for line in follower.take(client.messages(wait_s=60.0)):
                say(line)
    except KeyboardInterrupt:
        return


@dataclass(slots=True)
class Follower:
    """What has been shown of a job's output: up to line `last` of this attempt."""

    job_id: str
    attempt: int
    last: int
    is_over: bool = False

    def take(self, messages: Iterable[tuple[Topic, bytes]]) -> list[str]:
        """Return what messages add; note whether the job is over."""
        lines = []
        for topic, payload in messages:
            if topic.job_id == self.job_id and topic.kind is Kind.LOG:
                lines += self.news(payload)
            elif topic.job_id == self.job_id and topic.kind is Kind.JOB:
                self.is_over = _is_over(payload)
        return lines

    def news(self, payload: bytes) -> list[str]:
        """Return what a message adds; where lines are missing before it, a line says how many."""
        try:
            said = decode_lines(payload)
        except BadMessage:
            return []
        if said.attempt < self.attempt:
            return []
        if said.attempt > self.attempt:
            self.attempt, self.last = said.attempt, 0
        hole = said.number - self.last - 1
        lines = [missing(hole)] if hole > 0 else []
        lines += said.lines[max(0, -hole) :]
        self.last = max(self.last, said.number + len(said.lines) - 1)
        return lines
