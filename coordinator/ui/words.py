"""Times, sizes and figures as people say them. Nothing here needs a terminal, or loads one."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click

from broker import sentences
from broker.sentences import HANG, is_figure, json_text, laid_out, printable, rounded, span
from coordinator.jobs.in_words import awaits, waits

ID_CHARS: Final = 12
NO_HOST: Final = "no host can"  # stands where the host would
AWAITS_CUDA: Final = "awaits CUDA"  # there as well
NAMED: Final = 3  # jobs of several
# A whole time within words of the fleet: `2026-05-28 18:30 UTC`, `2026-05-28T18:30:00.000Z`.
_MOMENT: Final = re.compile(
    r"\b(\d{4}-\d\d-\d\d)(?: (\d\d:\d\d) UTC|T(\d\d:\d\d)(?::\d\d(?:\.\d{1,6})?)?Z)(?!\w)"
)


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


def answer(data: Any, text: str, *, as_json: bool) -> None:
    """Print what came of a command: as JSON, or in words."""
    if as_json:
        print_json(data)
    else:
        say(told(text))


def ago(at: str | None, now: datetime | None = None) -> str:
    """Return an RFC 3339 time as people say it: `3 min ago`; nothing for none."""
    if not at:
        return ""
    passed_s = ((now or datetime.now(UTC)) - datetime.fromisoformat(at)).total_seconds()
    return "now" if abs(passed_s) < 2 else f"{span(abs(passed_s))} ago"


def moment(at: str | datetime) -> str:
    """Return a time by this machine's clock, with its zone: `2026-05-28 20:30 CEST`."""
    then = (datetime.fromisoformat(at) if isinstance(at, str) else at).astimezone()
    zone = then.tzname() or ""
    if not (zone.isalpha() and zone.isascii() and len(zone) <= 5):  # as on Windows
        zone = f"UTC{then:%z}"
    return f"{then:%Y-%m-%d %H:%M} {zone}"


def told(text: str) -> str:
    """Return what the fleet says in words: made printable, its times by this machine's clock."""
    return _MOMENT.sub(_moment, printable(text))


def _moment(found: re.Match[str]) -> str:
    day, plain, iso = found.groups()
    try:
        return moment(f"{day}T{plain or iso}:00+00:00")
    except (ValueError, OverflowError):  # `2026-99-99 10:00 UTC`, as a trainer may have said it
        return found[0]


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


def took(row: dict[str, Any]) -> str:
    """Return how long a job ran or has been running; nothing before it has started."""
    if row.get("ran_s") is not None:
        return span(row["ran_s"])
    if not row.get("started_at"):
        return ""
    end = row.get("finished_at")
    stop_s = seconds(end) if end else time.time()
    return span(max(0.0, stop_s - seconds(row["started_at"])))


def seconds(at: str | None) -> float:
    """Return an RFC 3339 time in seconds since the epoch; 0 for what is none."""
    try:
        return datetime.fromisoformat(at or "").timestamp()
    except ValueError:
        return 0.0


def size(count_bytes: float | None) -> str:
    """Return a number of bytes in binary units."""
    return "-" if count_bytes is None else sentences.size(count_bytes)


def short(identity: str | None) -> str:
    """Return the start of an id, enough to name it by; nothing for none."""
    return identity[:ID_CHARS] if identity else ""


def figure(metrics: dict[str, Any] | None, name: str) -> str:
    """Return a metric to three decimals, with its interval if it has one; nothing for none."""
    value = (metrics or {}).get(name)
    if not is_figure(value):
        return ""
    interval = (metrics or {}).get(f"{name}_ci")
    if isinstance(interval, list) and len(interval) == 2 and all(map(is_figure, interval)):
        return f"{rounded(value)} [{interval[0]:.2f}, {interval[1]:.2f}]"
    return rounded(value)


def score(metrics: dict[str, Any] | None) -> str:
    """Return the AUROC of a result as tables have it, without its interval; nothing for none."""
    return figure({"auroc": (metrics or {}).get("auroc")}, "auroc")


def host(row: dict[str, Any]) -> str:
    """Return which host has a job, or what a pending one waits for."""
    if row.get("unplaceable"):
        return NO_HOST
    if waits_for := row.get("waits_for"):
        return awaits(waits_for)
    return AWAITS_CUDA if row.get("awaits_cuda_s") else row["host"] or ""


def unplaceable(names: Sequence[str], count: int) -> str:
    """Say which jobs no known host can run, the first few by name, and what tells why."""
    more = f" and {count - NAMED} more" if count > NAMED else ""
    return (
        f"no known host can run {', '.join(names[:NAMED])}{more}; `fleet why {names[0]}` says why"
    )


def waiting(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Say what the jobs of these rows wait for, those together that wait for the same."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if waits_for := row.get("waits_for"):
            one, several = waits(waits_for), waits(waits_for, several=True)
            found.setdefault(f"{one}\n{several}", []).append(row["name"])
    for words, names in found.items():
        one, _, several = words.partition("\n")
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield f"{', '.join(names[:NAMED])}{more} {one if len(names) == 1 else several}"


def unread(who: Mapping[str, Any]) -> str:
    """Say that the manifest of a coordinator was changed since it was read, if it was."""
    changed = who.get("manifest_changed")
    return f"{changed}, and not read since; `fleet reload` reads it" if changed else ""


def awaiting_cuda(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say of jobs that are kept for hosts with CUDA until when that is."""
    more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
    names = ", ".join(row["name"] for row in rows[:NAMED])
    left = span(min(row["awaits_cuda_s"] for row in rows))
    if len(rows) == 1:
        return f"{AWAITS_CUDA}: {names} prefers it; in {left} any host may have it"
    return f"{AWAITS_CUDA}: {names}{more} prefer it; in {left} any host may have the first of them"


def done(row: dict[str, Any]) -> str:
    """Return how much is done of a job that a host holds, `40%`, or what it is at instead."""
    share, phase = row.get("share"), (row.get("held") or {}).get("phase", "running")
    done = "" if share is None else f"{share:.0%}"
    if phase != "running":
        return f"{phase} {done}".rstrip()
    return done or str((row.get("progress") or {}).get("phase", ""))


def left(row: dict[str, Any]) -> str:
    """Return for how much longer a running job will take, as the coordinator knows it."""
    if row.get("away") or row.get("no_room"):
        return "?"  # what its trainer said last is of no use
    from coordinator.jobs.job_progress import left_words

    return left_words(row.get("left_s"))


def rest(left: str) -> str:
    """Return within a sentence what `left` is in a column; nothing for nothing."""
    said = {"": "", "soon": "it ends soon", "late": "it should be over"}
    return said.get(left, f"{left} left")


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
    line = told(text or "").strip().partition("\n")[0]
    return line if len(line) <= limit else line[: limit - 1] + "…"


def by_row(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what rows of jobs are sorted by."""
    return by_activity(
        row["state"], row["finished_at"], row["priority"], row["created_at"], row["name"]
    )


def by_activity(
    state: str, finished_at: str | None, priority: int, created_at: str, name: str
) -> tuple[Any, ...]:
    """Return the sort key: running, claimed, pending in claim order, then the newest end first."""
    turn = (-priority, created_at, name)
    if state in _FIRST:
        return _FIRST.index(state), 0.0, *turn
    return len(_FIRST), -seconds(finished_at), *turn
