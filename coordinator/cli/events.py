"""`fleet events`."""

from __future__ import annotations

import itertools
import operator
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import click

from broker.figures import some, span_s
from broker.protocol.messages import AskEvents
from broker.system.machine import new_id
from coordinator.jobs.reason_words import moment as local_moment
from coordinator.ui import terminal
from coordinator.ui.candidates import complete_host, complete_job
from coordinator.ui.live import until
from coordinator.ui.options import OperatorClient, client_options, flag, option
from coordinator.ui.words import is_json, print_json, print_json_line, say

POLL_S: Final = 1.0
NAMED: Final = 3  # jobs of one reload that are named
_OF_RELOAD: Final = frozenset({"added", "changed", "adopted", "orphaned"})


def moment(_ctx: click.Context, _option: click.Parameter, value: str) -> float:
    """Return a time as seconds since the epoch: so long ago, or by this machine's clock."""
    if (ago_s := span_s(value)) is not None:
        return max(0.0, time.time() - ago_s)
    try:
        return max(0.0, datetime.fromisoformat(value).timestamp())
    except (ValueError, OverflowError, OSError):
        text = f"{value!r}: write 90s, 30m, 1h, 7d, or 2026-05-28T20:30"
        raise click.BadParameter(text) from None


@click.command("events")
@option("--since", "TIME", "So long ago (90s, 30m, 1h, 7d, 2w), or a local time.",
        callback=moment, default="1d", show_default=True)  # fmt: skip
@option("--job", "JOB", "Of this job only.", shell_complete=complete_job)
@option("--host", "HOST", "Of this host only.", shell_complete=complete_host)
@option("--who", "WHO", "By this one only: operator:alice, alice, operator, host.")
@flag("--follow -f", "Go on printing what happens, until Ctrl-C.")
@client_options
def events_command(
    client: OperatorClient,
    since: float,
    job: str | None,
    host: str | None,
    who: str | None,
    follow: bool,
) -> None:
    """What happened: moves of jobs, and what operators did or were refused. Newest last.

    What a reload did to several jobs is one line, with --json one event a job.
    Times are this machine's local ones; in JSON they are RFC 3339 in UTC. With --follow, JSON is
    one object a line. That nothing was found is said on standard error, not with --json.

    Example: fleet events --since 1h --who operator
    """
    wanted = AskEvents(id=new_id(), since=since, job=job, host=host, who=who)
    found: list[dict[str, Any]] = []
    is_whole = is_json() and not follow  # one document

    def next_page() -> bool:
        """Tell the next page; return whether there are more."""
        nonlocal wanted
        page = client.ask(wanted)
        wanted = wanted.model_copy(update={"id": new_id(), "after": tuple(page["next"])})
        found.extend(page["events"] if is_whole else page["events"][:1])
        if not is_whole:
            _print(page["events"])
        return bool(page["more"])

    def look() -> None:
        next_page()

    while next_page():
        pass
    if is_whole:
        print_json(found)
    elif not found and not is_json():
        _tell_of_nothing(client, wanted)
    if follow:
        until(look, lambda: time.sleep(POLL_S), lambda text: say(text, err=True))


def _tell_of_nothing(client: OperatorClient, wanted: AskEvents) -> None:
    """Say on standard error what was looked for in vain, and whether nobody knows the host."""
    from broker.wrapping import printable
    from coordinator.cli.check import known_hosts
    from coordinator.jobs.causes import cause, in_words
    from coordinator.scheduler.unknown_hosts import closest

    kinds = (("of job", wanted.job), ("of host", wanted.host), ("by", wanted.who))
    what = "".join(f" {word} {name}" for word, name in kinds if name is not None)
    since = local_moment(datetime.fromtimestamp(wanted.since or 0.0, UTC))
    say(printable(f"nothing was found{what}, since {since}"), err=True)
    if wanted.host is not None:
        known = known_hosts(client)
        if known is not None and wanted.host not in known:
            why = cause("no_host", name=wanted.host, meant=closest(wanted.host, known))
            say(printable(in_words(why)), err=True)


def _print(rows: list[dict[str, Any]]) -> None:
    if is_json():
        for row in rows:
            print_json_line(row)
        return
    for row in together(rows):
        terminal.print_event(row)


def together(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield events for people: what one reload did to several jobs is one, with their number."""
    alike = operator.itemgetter("event", "at", "who", "why", "outcome")
    for key, group in itertools.groupby(rows, alike):
        same = list(group)
        if len(same) == 1 or key[0] not in _OF_RELOAD:
            yield from same
            continue
        names = some([str(row["name"]) for row in same], NAMED)
        yield {**same[0], "host": None, "name": f"{len(same)} jobs: {names}"}
