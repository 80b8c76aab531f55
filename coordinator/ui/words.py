"""Times, sizes and figures as people say them. Nothing here needs a terminal, or loads one."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click

from broker import figures
from broker.clock import seconds_of
from broker.figures import some, span
from broker.wrapping import HANG, json_text, laid_out, printable
from coordinator.jobs.reason_words import key
from coordinator.jobs.waiting_words import passes, waits

ID_CHARS: Final = 12
JSON: Final = "coordinator.cli.json"  # in a context's `meta`
NO_HOST: Final = "no host can"  # stands where the host would
AWAITS_CUDA: Final = "awaits CUDA"  # there as well
NAMED: Final = 3  # jobs of several
_FIRST: Final = ("running", "claimed", "pending")


def say(text: str, *, err: bool = False, indent: int | None = None) -> None:
    """Print sentences, to standard error if `err`; on a terminal lines are broken between words.

    What does not fit goes on `indent` blanks further in than it begins; unless that is said, as
    complaints do on standard error, and else as far in. Commands to copy are for `click.echo`.
    """
    further = (HANG if err else 0) if indent is None else indent
    click.echo(laid_out(text, sys.stderr if err else sys.stdout, indent=further), err=err)


def print_json_line(data: Any) -> None:
    """Print JSON on one line: one of several documents."""
    click.echo(json_text(data))


def print_json(data: Any) -> None:
    """Print JSON, indented where people read it."""
    click.echo(json_text(data, indent=2 if sys.stdout.isatty() else None))


def is_json() -> bool:
    """Whether the verb that runs was given `--json`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(JSON))


def answer(data: Any, text: str) -> None:
    """Print what came of a command: as JSON, or in words."""
    if is_json():
        print_json(data)
    else:
        say(printable(text))


def ago(at: str | None, now: datetime | None = None) -> str:
    """Return an RFC 3339 time as people say it: `3 min ago`; nothing for none."""
    if not at:
        return ""
    passed_s = ((now or datetime.now(UTC)) - datetime.fromisoformat(at)).total_seconds()
    return "now" if abs(passed_s) < 2 else f"{span(abs(passed_s))} ago"


def local(at: str) -> str:
    """Return an RFC 3339 time by this machine's clock: `05-28 20:30:00`; what is none, as it is."""
    try:
        return f"{datetime.fromisoformat(at).astimezone():%m-%d %H:%M:%S}"
    except (ValueError, OverflowError):
        return printable(at)


def by(event: Mapping[str, Any]) -> str:
    """Return who did it: `operator:al`, `coordinator`; `host` where it is the one that is named."""
    who = str(event["who"])
    return "host" if event["host"] and who == f"host:{event['host']}" else who


def listed(value: Any) -> str:
    """Return a value of a manifest in words; nothing for one that is not set."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        found = {key: one for key, one in value.items() if one not in (None, False)}
        return ", ".join(key if one is True else f"{key} {one}" for key, one in found.items())
    return "" if value is None else value if isinstance(value, str) else figures.in_toml(value)


def short(identity: str | None) -> str:
    """Return the start of an id, enough to name it by; nothing for none."""
    return identity[:ID_CHARS] if identity else ""


def unplaceable(names: Sequence[str], count: int) -> str:
    """Say which jobs no known host can run, the first few by name, and what tells why."""
    which = some(names, NAMED, count)
    return f"no known host can run {which}; `fleet why {names[0]}` says why"


def waiting(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Say what the jobs of these rows wait for, those together that wait for the same.

    Of a job before them that goes on nothing is said.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if (waits_for := row.get("waits_for")) and not passes(waits_for):
            found.setdefault(key(waits_for), []).append(row)
    for alike in found.values():
        names = [row["name"] for row in alike]
        yield f"{some(names, NAMED)} {waits(alike[0]['waits_for'], several=len(names) > 1)}"


def awaiting_cuda(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say of jobs that are kept for hosts with CUDA until when that is."""
    names = some([row["name"] for row in rows], NAMED)
    left = span(min(row["awaits_cuda_s"] for row in rows))
    if len(rows) == 1:
        return f"{AWAITS_CUDA}: {names} prefers it; in {left} any host may have it"
    return f"{AWAITS_CUDA}: {names} prefer it; in {left} any host may have the first of them"


def namesakes(data: Mapping[str, Any]) -> list[str]:
    """Return which other jobs have the name of the one that an answer is of."""
    return [
        f"{short(one['job_id'])}, {one['state']}{' on ' + one['host'] if one['host'] else ''}"
        f"{'' if one['in_plan'] else ', no longer in the manifest'}"
        for one in data.get("others") or ()
    ]


def tell_of_namesakes(data: Mapping[str, Any], asked: str) -> None:
    """Say on standard error that a name stood for one of several jobs; nothing of an id."""
    if not data["job_id"].startswith(asked):
        for one in namesakes(data):
            words = f"by its name {short(data['job_id'])} was meant; another is so called: {one}"
            say(printable(words), err=True)


def first_line(text: str | None, limit: int = 60) -> str:
    """Return the first line of a text, cut where it is long."""
    line = printable(text or "").strip().partition("\n")[0]
    return line if len(line) <= limit else line[: limit - 1] + "…"


def by_row(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what rows of jobs are sorted by."""
    ended_s = seconds_of(row["finished_at"]) or 0.0
    return by_activity(row["state"], ended_s, row["priority"], row["created_at"], row["name"])


def by_activity(
    state: str, ended: float, priority: int, created: Any, name: str
) -> tuple[Any, ...]:
    """Return the sort key: running, claimed, pending in claim order, then the newest end first."""
    turn = (-priority, created, name)
    if state in _FIRST:
        return _FIRST.index(state), 0.0, *turn
    return len(_FIRST), -ended, *turn
