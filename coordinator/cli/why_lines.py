"""Why a job is not running, in lines, for `fleet why`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from broker.figures import counted
from broker.protocol.messages import AskWhy
from broker.system.machine import new_id
from coordinator.client.predictions import predicted
from coordinator.jobs.reason_words import HOW, alike, before, beyond, clause, wished
from coordinator.jobs.waiting_words import held_up, no_room
from coordinator.ui import outlook, terminal
from coordinator.ui.facts import in_text
from coordinator.ui.fitted_table import Column, Table
from coordinator.ui.job_view import reads
from coordinator.ui.options import OperatorClient
from coordinator.ui.words import namesakes

if TYPE_CHECKING:
    from coordinator.scheduler.forecast import Forecast

LIVE: Final = ("pending", "claimed", "running")
_BY_KIND: Final = {
    "out_of_memory": "it ran out of memory: raise its min_vram_gib or min_ram_gib, and reload",
    "killed": "if it ran out of memory: raise its min_ram_gib, and reload",
    "lost": "its hosts went away while it ran: `fleet workers` says how they are",
}
_CLAUSES: Final = (
    Column("CONDITION", least=12),
    Column("RULES OUT", right=True),
    Column("LEAVES", right=True),
    Column("WHICH", least=4, wrap=True),
)

Seen = tuple[dict[str, Any], "Forecast | None"]


def read(client: OperatorClient, job: str) -> Seen:
    """Ask why a job is not running, and predict when it will."""
    data: dict[str, Any] = client.ask(AskWhy(id=new_id(), job=job))
    found = predicted(client) if data["state"] in LIVE else None
    return data, found if found and data["job_id"] in found.outlooks else None


def to_json(seen: Seen) -> dict[str, Any]:
    """Return it as JSON values."""
    data, found = seen
    if found is None:
        return data | {"forecast": None}
    one = outlook.to_dict(found.outlooks[data["job_id"]], datetime.now(UTC), paused=found.paused)
    return data | {"forecast": one | {"paused": found.paused}}


def in_lines(seen: Seen) -> Iterator[Any]:
    """Yield the lines and tables of it."""
    data, found = seen
    line = terminal.Text(f"{data['name']} is ").append(terminal.state(data["state"]))
    yield terminal.paragraph(line.append(terminal.printable(beyond(data))))
    if lack := data.get("no_room"):
        yield terminal.paragraph(f"Its result {no_room(lack)}.")
        words = "Make room there; its host tries again every two minutes or sooner."
        yield terminal.paragraph(words, 2)
    if fault := (data.get("held") or {}).get("fault"):
        yield terminal.paragraph(f"It {held_up(data['host'], fault)}.")
    if data.get("data"):
        yield terminal.paragraph(f"It reads {in_text(reads(data))}.")
    for one in namesakes(data):
        yield terminal.paragraph(f"Another job has this name: {one}")
    if found is not None and (text := outlook.likely(found.outlooks[data["job_id"]], found)):
        yield terminal.paragraph(text)
    for text in before(data)[1:]:
        yield terminal.paragraph(f"It {text}." if text.startswith("waits") else text, 2)
    for text in _advice(data):
        yield terminal.paragraph(text, 2)
    yield from _clauses(data)
    yield from _hosts(data)
    if (more := data.get("known", 0) - len(data["hosts"])) > 0:
        yield terminal.paragraph(f"and {counted(more, 'host')} with more against them", 2)


def _advice(data: dict[str, Any]) -> list[str]:
    """Say what else there is to know of a job that is over, and not well."""
    if data["state"] != "failed":
        return []
    name = data["name"]
    output = f"`fleet logs {name}` shows its output, `fleet show {name}` where it was tried"
    by_kind = _BY_KIND.get(data["error_kind"])
    return [by_kind, output] if by_kind else [output]


def _clauses(data: dict[str, Any]) -> Iterator[Any]:
    if data["clauses"]:
        known = data["known"]
        rows = [(counted(known, "known host"), "", known, "")]
        rows += [
            (title, one["against"] or "-", one["left"], which)
            for one in data["clauses"]
            for title, which in (clause(one),)
        ]
        yield ""
        yield Table(_CLAUSES, rows)
    suits = data["suitable"]
    if suits:
        counts = data["suit"]
        told = [
            f"{counts[how]} {HOW.get(how, how)} ({_some(names)})" for how, names in suits.items()
        ]
        yield ""
        words = f"{sum(counts.values())} would suit it, in time: {', '.join(told)}"
        yield terminal.paragraph(words)
    title, changes = wished(data)
    if changes:
        yield f"\n{title}"
    for text in changes:
        yield terminal.paragraph(text, 2)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def _hosts(data: dict[str, Any]) -> Iterator[Any]:
    """Yield the hosts, grouped by reasons, without a pause, which the summary has told already."""
    hosts = data["hosts"]
    said = {"paused"} if data["paused"] and len(hosts) > 1 else set()
    if hosts:
        yield ""
    groups = alike(hosts, said)
    wide = max((len(names[0]) for _, names in groups if len(names) == 1), default=0) + 2
    for reasons, names in groups:
        title = terminal.Text().append(", ".join(names), "bold")
        if len(names) > 1:
            yield terminal.paragraph(title, 2)
            yield from (terminal.paragraph(reason, 4) for reason in reasons)
            continue
        beside = f"\n{' ' * (2 + wide)}".join(map(terminal.printable, reasons))
        title.append(" " * (wide - len(names[0])) + beside)
        yield terminal.paragraph(title, 2, hang=wide)
