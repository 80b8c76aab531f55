"""`fleet reload`; `fleet plan` announces what it changes by the same lines."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from broker.protocol.messages import AskReload
from broker.system.machine import new_id
from broker.wrapping import printable
from coordinator.client.contact import NotDone
from coordinator.manifest.diff import changes_in_words, is_nothing, values_in_words
from coordinator.ui import terminal
from coordinator.ui.options import OperatorClient, client_options, flag
from coordinator.ui.terminal import Line, paragraph
from coordinator.ui.words import is_json, print_json, say, short

if TYPE_CHECKING:
    from coordinator.manifest.diff import Difference

LEAST_ROWS: Final = 5
OTHER_LINES: Final = 24  # of a screen: headings, totals, the prompt
ALL: Final = 1_000_000
_SIGNS: Final = {"added": "+", "changed": "~", "adopted": "+", "replaced": "±", "orphaned": "-"}
_STYLES: Final = {"+": "green", "~": "yellow", "±": "magenta", "-": "red"}


def rows_of(*, show_all: bool) -> int:
    """Return how many lines a list of jobs, or of hosts, may have."""
    return ALL if show_all else max(LEAST_ROWS, (terminal.console().height - OTHER_LINES) // 2)


def announced(found: Difference) -> dict[str, Any]:
    """Return as JSON values what a reload would change, as the answer to a reload has it."""
    return {
        "changes": found.counts(),
        "steps": [step.to_dict() for step in found.told()],
        "hosts": {name: [*changes] for name, changes in found.hosts.items()},
        "settings": [*found.settings],
    }


def told(data: Mapping[str, Any], rows: int) -> Generator[Line, None, bool]:
    """Yield a line for each change, at most `rows` of jobs and of hosts; tell if some were cut."""
    counts, steps = data["changes"], data["steps"]
    for step in steps[:rows]:
        yield _line(_SIGNS[step["action"]], step["name"], _what(step))
    jobs = sum(counts[action] for action in _SIGNS)
    rest = _rest(jobs, len(steps), rows)
    yield from rest
    for change in data["settings"]:
        yield _line("~", change["what"], values_in_words(change))
    for name, changes in [*data["hosts"].items()][:rows]:
        yield _line("~", f"[hosts.{name}]", changes_in_words(changes))
    more = _rest(counts["hosts"], len(data["hosts"]), rows, " hosts")
    yield from more
    if not is_nothing(counts):
        yield Line("")
    return bool(rest or more)


def _line(sign: str, name: str, words: str) -> Line:
    line = (
        terminal.Text().append(f"{sign} ", _STYLES[sign]).append(terminal.printable(name), "bold")
    )
    return paragraph(line.append(f"  {terminal.printable(words)}"), 2, hang=2)


def _rest(count: int, named: int, rows: int, what: str = "") -> list[Line]:
    """Say how many of `count` had no line, if some, and where those stand."""
    left = count - min(named, rows)
    if left <= 0:
        return []
    where = "--all shows them" if named == count else "--all shows more of them"
    if named <= rows:
        where = "`fleet events --json` has the jobs" if not what else "the manifest has them"
    return [paragraph(f"and {left} more{what} ({where})", 4)]


def _what(step: Mapping[str, Any]) -> str:
    """Say what becomes of a job."""
    changes = changes_in_words(step["changes"])
    match step["action"]:
        case "added":
            return "new"
        case "adopted":
            return f"in the manifest now ({step['state']}){f'; {changes}' if changes else ''}"
        case "replaced":
            return f"another job now: {changes}; the old one is {_fate(step)}"
        case "orphaned":
            return f"no longer in the manifest; {_fate(step)}"
        case _:
            return changes


def _fate(step: Mapping[str, Any]) -> str:
    """Say what becomes of a job that is in the manifest no more."""
    state = step["state"]
    if state not in {"pending", "claimed", "running"}:
        return f"{state}, and stays so"
    cancel = f"`fleet cancel {short(step['replaces'] or step['job_id'])}`"  # its name: the new one
    if state == "pending":
        return f"pending, and never given to a host; {cancel} ends it"
    return f"{state} on {step['host']}, and goes on; {cancel} stops it"


@click.command("reload")
@flag("--all show_all", "Show every job, not a screenful.")
@client_options
def reload_command(client: OperatorClient, show_all: bool) -> int:
    """Have the coordinator read its manifest again.

    What that has changed is told by the lines by which `fleet plan MANIFEST` tells it before; of a
    large change the answer names the first hundred jobs and hosts. A manifest with errors changes
    nothing; all of them are printed.

    Example: fleet reload
    """
    try:
        data = client.ask(AskReload(id=new_id()))
    except NotDone as refusal:
        for one in refusal.errors:
            file = f"{one['file']}:{one['line']}" if one.get("line") else one["file"]
            where = ": ".join(filter(None, (file, one["job"], one["key"])))
            refusal.add_note(f"{where}: {one['message']}")
        raise
    if is_json():
        print_json({"ok": True, **data})
    else:
        _print(data, show_all=show_all)
    return 0


def _print(data: dict[str, Any], *, show_all: bool) -> None:
    from coordinator.jobs.causes import in_words, plan_words

    terminal.put(terminal.console(), told(data, rows_of(show_all=show_all)))
    say(plan_words(data["changes"]))
    for why in data.get("warnings", ()):
        say(f"warning: {printable(in_words(why))}", err=True)
