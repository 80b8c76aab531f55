"""`fleet logs`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import click

from broker.clock import rfc3339
from broker.errors import BadMessage
from broker.protocol.loglines import decode_lines, missing
from broker.protocol.messages import JOB_ROW, AskLogs, decode
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topic
from broker.system.machine import new_id
from broker.wrapping import printable
from coordinator.jobs.states import FINAL
from coordinator.ui.live import until
from coordinator.ui.options import Where, asking, flag, option
from coordinator.ui.several import Choice, choosing, each
from coordinator.ui.words import is_json, local, print_json_line, tell_of_namesakes
from coordinator.ui.words import say as say_words

NOTHING: Final = "it has put nothing out yet"
_TIME: Final = len("12-31 23:59:59")
_Say = Callable[[str, str | None], None]


@click.command("logs")
@choosing
@flag("--follow -f", "Go on printing until the job is over.")
@option("--lines -n", "N", "How many of the last lines.",
        type=click.IntRange(1, 5000), default=200, show_default=True)  # fmt: skip
@flag("--times -t", "Show when each line was heard.")
@asking
def logs_command(at: Where, choice: Choice, follow: bool, lines: int, times: bool) -> int:
    """The output of a job's newest attempt.

    Where lines are missing, a line says how many: the host or the coordinator was cut off for long,
    or more than 100 were put out in a second, of which the first and last 50 are kept. Times are
    when the coordinator heard a line (with --follow, this machine); lines that a host kept while
    nobody listened come later than they were put out. Control characters and colours are left out,
    in a file too; JSON keeps them, escaped. With --follow, JSON is one object a line.

    \b
    Examples:
      fleet logs gbt-oracle --follow
      fleet logs gbt-oracle --times
      fleet logs --status failed -n 20
    """  # noqa: D301 - \b is click's
    if follow and choice.only is None:
        raise click.UsageError("--follow: of one job")
    with at.connect(*((Kind.LOG, Kind.JOB) if follow else ())) as client:

        def ask(job: str) -> dict[str, Any]:
            data = client.ask(AskLogs(id=new_id(), job=job, lines=lines))
            tell_of_namesakes(data, job)
            at = [None if at_s is None else rfc3339(at_s) for at_s in data["times"]]
            return {**data, "times": at}

        say = _say_timed if times else _say
        if not follow:
            show = _titled(say) if choice.only is None else partial(_show, say)
            return each(choice, lambda: choice.asked(client, "logs"), ask, show)
        data = ask(str(choice.only))
        say = _say_json if is_json() else say
        for line, said_at in zip(data["lines"], data["times"], strict=True):
            say(line, said_at)
        follower = Follower(data["job_id"], data["attempt"], data["last"])

        def look() -> bool:
            for line in follower.take(client.messages(wait_s=5.0)):
                say(line, rfc3339(time.time()))
            client.check()
            return follower.is_over

        until(look, lambda: None, lambda text: say_words(text, err=True))
    return 0


def _titled(say: _Say) -> Callable[[dict[str, Any]], None]:
    """Return what shows the output of several jobs, each below its name."""
    gap = ""

    def show(row: dict[str, Any]) -> None:
        nonlocal gap
        click.echo(f"{gap}==> {printable(row['name'])} <==")
        gap = "\n"
        _show(say, row)

    return show


def _show(say: _Say, data: dict[str, Any]) -> None:
    for line, at in zip(data["lines"], data["times"], strict=True):
        say(line, at)
    if not data["lines"]:
        click.echo(NOTHING, err=True)


def _say(line: str, _at: str | None) -> None:
    click.echo(printable(line))


def _say_timed(line: str, at: str | None) -> None:
    click.echo(f"{local(at) if at else '':{_TIME}}  {printable(line)}")


def _say_json(line: str, at: str | None) -> None:
    print_json_line({"line": line, "at": at})


def _is_over(payload: bytes) -> bool:
    try:
        return decode(JOB_ROW, payload).state in FINAL
    except BadMessage:
        return False


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
