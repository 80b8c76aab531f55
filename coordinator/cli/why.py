"""`fleet why`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from broker.errors import RemoteError
from broker.protocol.messages import AskWhy
from broker.sentences import counted
from broker.system.machine import new_id
from coordinator.client.contact import NotDone, Unreachable
from coordinator.client.predictions import look
from coordinator.jobs.in_words import HOW, alike, beyond, clause, no_room, wished
from coordinator.ui import outlook, terminal
from coordinator.ui.live import View, viewing
from coordinator.ui.options import job_argument
from coordinator.ui.words import namesakes

if TYPE_CHECKING:
    from coordinator.client.client import OperatorClient
    from coordinator.scheduler.forecast import Forecast, Outlook

LIVE: Final = ("pending", "claimed", "running")
_MEMORY: Final = ("out of memory", "memoryerror", "cannot allocate")
_PERHAPS_MEMORY: Final = "for want of memory"  # the agent's words of who was killed


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
    return View(lambda: _read(client, job), _draw)


def _read(client: OperatorClient, job: str) -> dict[str, Any]:
    data: dict[str, Any] = client.ask(AskWhy(id=new_id(), job=job))
    data["advice"] = _advice(data)
    found = _forecast(client) if data["state"] in LIVE else None
    one = found.outlooks.get(data["job_id"]) if found else None
    data["forecast"] = None
    if found is not None and one is not None:
        text = _when(one, found, takes="now" in data["suitable"])
        told = {"text": text, "paused": found.paused}
        data["forecast"] = outlook.to_dict(one, datetime.now(UTC), paused=found.paused) | told
    return data


def _draw(data: dict[str, Any]) -> Iterable[Any]:
    return terminal.drawn(partial(_print, data))


def _print(data: dict[str, Any], out: Any) -> None:
    line = terminal.Text(f"{data['name']} is ").append(terminal.state(data["state"]))
    outlook.say(out, line.append(terminal.told(beyond(data))))
    if lack := data.get("no_room"):
        outlook.say(out, f"Its result {no_room(lack)}.")
        outlook.say(out, "Make room there; its host tries again every two minutes or sooner.", 2)
    for one in namesakes(data):
        outlook.say(out, f"Another job has this name: {one}")
    if data["forecast"] is not None and data["forecast"]["text"]:
        outlook.say(out, data["forecast"]["text"])
    for text in data["advice"]:
        outlook.say(out, text, 2)
    _print_clauses(out, data)
    _print_hosts(out, data)
    if (more := data.get("known", 0) - len(data["hosts"])) > 0:
        outlook.say(out, f"and {counted(more, 'host')} with more against them", 2)


def _forecast(client: OperatorClient) -> Forecast | None:
    try:
        return look(client).forecast()
    except (NotDone, RemoteError, Unreachable):
        return None  # of another version: the reasons are what was asked for


def _when(one: Outlook, found: Forecast, *, takes: bool = True) -> str:
    """Say when a job will start, or end, and what that rests on; `takes`: some host can now."""
    by = one.estimate.words(in_full=True) if one.estimate else ""
    match one.verdict:
        case "running" if one.ends_known and one.end is not None:
            return f"It will likely end {outlook.about(one.end)}, by {by}."
        case "running" if one.vague:
            return ""  # its host is away: what is to be expected of it is said already
        case "running" if one.estimate and one.estimate.basis == "overdue":
            return f"When it ends is unknown: it has run {by}."
        case "running":
            return "How long it will take is unknown: nothing like it was ever completed."
        case "starts":
            text = _start(one, found, by, takes=takes or found.paused)
            return (
                f"If the fleet goes on now, it{text.removeprefix('It')}" if found.paused else text
            )
        case _:
            return ""


def _start(one: Outlook, found: Forecast, by: str, *, takes: bool) -> str:
    assert one.start is not None  # noqa: S101 - it starts
    assert one.end is not None  # noqa: S101 - likewise
    before = found.outlooks.get(one.after or "")
    after = f", when that has finished {before.spec.name}" if before else ""
    if one.ahead:
        others = "1 other pending job goes" if one.ahead == 1 else f"{one.ahead} others go"
        after += f"; {others} there first"
    if one.vague:
        return (
            f"It will likely go to {one.host}{after}; when is unknown, since it comes after a job "
            "whose end nobody knows."
        )
    text = f"It will likely start {outlook.about(one.start)}, on {one.host}{after}."
    if one.after is None and one.start.median_s < outlook.SOON_S:
        text = f"It will likely start {'now' if takes else 'soon'}, on {one.host}."
    if one.ends_known:
        return f"{text} Likely done {outlook.about(one.end)}, by {by}."
    return f"{text} How long it takes is unknown: nothing like it was ever completed."


def _advice(data: dict[str, Any]) -> list[str]:
    """Say what else there is to know of a job that is over, and not well."""
    if data["state"] != "failed":
        return []
    name, why = data["name"], (data["error"] or "").lower()
    found = [f"`fleet logs {name}` shows its output, `fleet show {name}` where it was tried"]
    if any(words in why for words in _MEMORY):
        found.insert(0, "it ran out of memory: raise its min_vram_gib or min_ram_gib, and reload")
    elif _PERHAPS_MEMORY in why:
        found.insert(0, "if it ran out of memory: raise its min_ram_gib, and reload")
    if data["was_lost"]:
        found.insert(0, "its hosts went away while it ran: `fleet workers` says how they are")
    return found


def _print_clauses(out: Any, data: dict[str, Any]) -> None:
    if data["clauses"]:
        known = data["known"]
        rows = [(counted(known, "known host"), "", known, "")]
        rows += [
            (title, one["against"] or "-", one["left"], which)
            for one in data["clauses"]
            for title, which in (clause(one),)
        ]
        out.print()
        columns = ("CONDITION", ">RULES OUT", ">LEAVES", "WHICH")
        out.print(terminal.table(columns, rows, wrap=True))
    suits = data["suitable"]
    if suits and "now" not in suits:
        counts = data["suit"]
        told = [
            f"{counts[how]} {HOW.get(how, how)} ({_some(names)})" for how, names in suits.items()
        ]
        out.print()
        outlook.say(out, f"{sum(counts.values())} would suit it, in time: {', '.join(told)}")
    title, changes = wished(data)
    if changes:
        out.print(f"\n{title}")
    for text in changes:
        outlook.say(out, text, 2)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def _print_hosts(out: Any, data: dict[str, Any]) -> None:
    """Print the hosts, grouped by reasons, without a pause, which the summary has told already."""
    hosts = data["hosts"]
    said = {"paused"} if data["paused"] and len(hosts) > 1 else set()
    if hosts:
        out.print()
    groups = alike(hosts, said)
    wide = max((len(names[0]) for names in groups.values() if len(names) == 1), default=0)
    for reasons, names in groups.items():
        texts = [terminal.told(reason) for reason in reasons]
        title = terminal.Text().append(", ".join(names), "bold")
        if len(names) > 1:
            outlook.say(out, title, 2)
            for text in texts:
                outlook.say(out, text, 4)
            continue
        outlook.say_beside(out, title.append(" " * (wide - len(names[0]) + 2)), texts, 2)
