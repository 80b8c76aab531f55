"""`fleet status`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from broker.figures import counted
from broker.protocol.messages import AskStatus
from broker.system.machine import new_id
from broker.wrapping import printable
from coordinator.client.predictions import predicted
from coordinator.jobs.causes import in_words, unread
from coordinator.jobs.reason_words import away, words
from coordinator.jobs.waiting_words import held_up, low_disk
from coordinator.ui import outlook, terminal
from coordinator.ui.live import View, viewing
from coordinator.ui.options import OperatorClient

if TYPE_CHECKING:
    from coordinator.scheduler.forecast import Forecast

SHOWN: Final = 8  # hosts
_TAKES_TIME: Final = "`fleet plan` takes the time to predict them"
INDENT: Final = 13  # as far as the facts stand beside their titles
_Words = str | tuple[str, str]  # where one and several are said differently, both

# What operators asked for and were refused: `fleet events` has each.
_WHY: Final[dict[str, _Words]] = {
    "unsigned": "unsigned",
    "signature": "with a wrong signature",
    "stale": "signed too long ago, or in the future",
    "rights": ("by a user who may only look", "by users who may only look"),
    "expired": ("after its expiry", "after their expiry"),
    "too_many": "of too many at once",
}
# What was refused of hosts: nobody has asked for it, so that the coordinator's log alone has it.
_OF_HOSTS: Final[dict[str, _Words]] = {
    "revoked": (
        "message of a host whose certificate was revoked",
        "messages of hosts whose certificates were revoked",
    ),
    "report": (
        "report about a job that was not its host's",
        "reports about jobs that were not their hosts'",
    ),
}


# What the broker calls its reasons (`broker.embedded.Reason`), in words.
_BY_BROKER: Final[dict[str, _Words]] = {
    "tls": "without a certificate of the fleet",
    "timeout": "too slow to connect",
    "crowd": "over the number of connections",
    "nobody": ("with a name that is nobody's", "with names that are nobody's"),
    "revoked": "with a revoked certificate",
    "expired": "with a certificate that ended",
    "connect": "with a connect that made no sense",
    "will": "with a will on another's topic",
    "malformed": "with a packet that made no sense",
    "oversize": "with a packet too large",
    "publish": ("publishing where it may not", "publishing where they may not"),
    "subscribe": (
        "subscribing to what it may not read",
        "subscribing to what they may not read",
    ),
    "retained": "retaining too much",
    "silent": "silent for too long",
    "slow": "too slow to read",
    "memory": "with the most that waits, when too much did",
    "websocket": "with a websocket that made no sense, or of another site's page",
}


@click.command("status")
@viewing
def status_command(client: OperatorClient) -> View:
    """How many jobs and hosts are in which state.

    \b
    Examples:
      fleet status
      fleet status --json --watch
    """  # noqa: D301 - \b is click's
    return View(lambda: _read(client), _draw, to_json=_to_dict)


_Seen = tuple[dict[str, Any], "Forecast | None"]


def _read(client: OperatorClient) -> _Seen:
    data: dict[str, Any] = client.ask(AskStatus(id=new_id()))
    return data, predicted(client) if _left(data) and not _unpredicted(data) else None


def _to_dict(seen: _Seen) -> dict[str, Any]:
    data, found = seen
    return data | {"forecast": found and outlook.summary_to_dict(found, datetime.now(UTC))}


def _draw(seen: _Seen) -> Iterator[Any]:
    data, forecast = seen
    if data.get("paused"):  # nobody should have to look for that
        yield terminal.Text("PAUSED       no new jobs are given out", style="bold yellow")
        yield _indented(words(data["paused"]))
    who = data["coordinator"]
    started = terminal.ago(who["started_at"])
    yield _fact("Coordinator", f"{who['host']}, version {who['version']}, started {started}")
    yield _fact("Broker", data["broker"]["address"])
    yield from _manifest(who)
    if fault := who.get("disk_fault"):
        text = f"{'Disk':<{INDENT}}{_disk_words(fault)}"
        yield terminal.Line(text, indent=INDENT, style="yellow")
    for title, counts in (("Jobs", data["jobs"]), ("Hosts", data["hosts"])):
        line = terminal.Text(f"{title:<{INDENT}}")
        shown = [(name, count) for name, count in counts.items() if count]
        for index, (name, count) in enumerate(shown):
            line.append(", " if index else "")
            line.append(f"{count} ").append(terminal.state(name))
        yield terminal.Line(line if shown else f"{title:<{INDENT}}none", indent=INDENT)
    for text in _warnings(data):
        yield _indented(text)
    text = _unpredicted(data)
    if forecast is not None:
        text = outlook.end_of_plan(forecast, data.get("starting", 0))
    if text:
        yield _fact("Outlook", text)
    if data["jobs"].get("pending") and not data["active"] and not data["runnable"]:
        yield f"\n{_why_nothing_starts(data)}"
    if data["dropped"]:
        found = ", ".join(f"{count} on {kind}" for kind, count in data["dropped"].items())
        yield _fact("Dropped", f"{found} (messages that made no sense)")
    yield from _refused(data["refused"])
    if at_door := data["broker"].get("refused"):
        yield _fact("By broker", f"{_counted(at_door, _BY_BROKER)}; its log tells more")


def _manifest(who: dict[str, Any]) -> Iterator[Any]:
    """Yield which manifest it is, and what is the matter with it, if anything is."""
    if who["plan"]:
        yield _fact("Plan", terminal.printable(who["plan"]))
    yield _fact("Manifest", who["manifest"] or "none")
    fault, news = in_words(who["manifest_fault"]), printable(unread(who["manifest_changed"]))
    said = terminal.Text(" " * INDENT)
    if fault:
        said.append("has errors", "red")
        said.append(terminal.printable(f", the last good plan goes on: {fault}"))
        said.append("; " if news else "")
    if fault or news:
        yield terminal.Line(said.append(news, "yellow"), indent=INDENT)


def _refused(counts: dict[str, int]) -> Iterator[Any]:
    """Yield what the coordinator refused, and who tells more of it."""
    of_hosts = {kind: count for kind, count in counts.items() if kind in _OF_HOSTS}
    of_operators = {kind: count for kind, count in counts.items() if kind not in _OF_HOSTS}
    title = "Refused"
    if of_operators:
        yield _fact(title, f"{_counted(of_operators, _WHY)}; see `fleet events`")
        title = ""
    if of_hosts:
        words = "the coordinator's log has the first of each kind"
        yield _fact(title, f"{_counted(of_hosts, _OF_HOSTS)}; {words}")


def _counted(counts: dict[str, int], words: dict[str, _Words]) -> str:
    said = []
    for kind, count in counts.items():
        one = words.get(kind, printable(kind))
        said.append(f"{count} {one if isinstance(one, str) else one[count != 1]}")
    return ", ".join(said)


def _fact(title: str, text: str) -> Any:
    return terminal.Line(f"{title:<{INDENT}}{text}", indent=INDENT)


def _why_nothing_starts(data: dict[str, Any]) -> str:
    if not sum(data["hosts"].values()):
        return "No host is known, so nothing can start: start an agent on each machine."
    if starting := data.get("starting"):
        return f"Nothing that is pending can start yet: {outlook.starting(starting)}."
    return "Nothing that is pending can start; `fleet why JOB` says why."


def _left(data: dict[str, Any]) -> int:
    return int(data["active"] + data["jobs"]["pending"])


def _unpredicted(data: dict[str, Any]) -> str:
    """Say what predicts jobs that are too many to be predicted by the way; empty: they are not."""
    left, known = _left(data), sum(data["hosts"].values())
    if left > outlook.BY_THE_WAY:
        return f"{left} jobs are left; {_TAKES_TIME}"
    if left and known > outlook.HOSTS_BY_THE_WAY:
        return f"{left} jobs are left for {known} hosts; {_TAKES_TIME}"
    return ""


def _disk_words(fault: dict[str, Any]) -> str:
    if fault["code"] == "low":
        return f"{low_disk(fault)}; make room"
    what = "refuses, as the coordinator's log says"
    if fault["code"] == "hangs":
        what = f"has not answered for {fault['silent_s']} s"
    waits = "waits" if fault["small"] == 1 else "wait"
    small = f"{counted(fault['small'], 'small result')} {waits} for it in the ledger"
    return f"the disk of the store {what}; {small}"


def _warnings(status: dict[str, Any]) -> Iterator[str]:
    """Yield which jobs will not run as things are, and the first few hosts that are given none."""
    if count := status.get("orphaned"):
        yield f"{count} pending no longer in the manifest, and given to no host any more"
    stuck = status.get("unplaceable") or {}
    if names := [job["name"] for job in stuck.get("jobs", ())]:
        yield terminal.unplaceable(names, stuck["count"])
    waits = status.get("waiting") or {}
    rows = waits.get("jobs", ())
    yield from terminal.waiting(rows)
    if (more := waits.get("count", 0) - len(rows)) > 0:
        yield f"and {counted(more, 'job')} more; `fleet list` says for what each waits"
    hosts = status.get("restrained", [])
    for row in hosts[:SHOWN]:
        for reason in row["reasons"]:
            yield f"{row['host']}: {words(reason)}"
    if len(hosts) > SHOWN:
        yield f"... and {len(hosts) - SHOWN} more; see `fleet workers`"
    for row in status.get("away", []):
        yield f"{row['job']}: {away(row)}"
    for row in status.get("held_up", []):
        yield f"{row['job']}: it {held_up(row['host'], row['fault'])}"


def _indented(words: str) -> terminal.Line:
    return terminal.Line(f"{' ' * INDENT}{words}", indent=INDENT, style="yellow")
