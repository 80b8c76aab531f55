"""What keeps jobs from hosts, in words: lines for `fleet status`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from broker.sentences import counted
from coordinator.scheduler.explanation_layout import no_room
from coordinator.ui import terminal

SHOWN: Final = 8
INDENT: Final = 13  # as far as the facts of `fleet status`


def paused(status: dict[str, Any]) -> Iterator[Any]:
    """Yield that the fleet is paused, if it is: nobody should have to look for that."""
    if status.get("paused"):
        yield terminal.Text("PAUSED       no new jobs are given out", style="bold yellow")
        yield _indented(status["paused"])


def disk(status: dict[str, Any]) -> Iterator[Any]:
    """Yield what is wrong with the disk of the store, if anything is."""
    if fault := status["coordinator"].get("disk_fault"):
        said = f"{'Disk':<{INDENT}}{_disk_words(fault)}"
        yield terminal.Line(said, indent=INDENT, style="yellow")


def _disk_words(fault: dict[str, Any]) -> str:
    if fault["code"] == "low":
        many = fault["jobs"] > 1
        return f"{counted(fault['jobs'], 'finished job')} {no_room(fault, several=many)}; make room"
    what = "refuses, as the coordinator's log says"
    if fault["code"] == "hangs":
        what = f"has not answered for {fault['silent_s']} s"
    waits = "waits" if fault["small"] == 1 else "wait"
    small = f"{counted(fault['small'], 'small result')} {waits} for it in the ledger"
    return f"the disk of the store {what}; {small}"


def orphaned(status: dict[str, Any]) -> Iterator[Any]:
    """Yield how many of the pending jobs will never run, if any: their count says nothing of it."""
    if count := status.get("orphaned"):
        yield _indented(f"{count} pending no longer in the manifest, and given to no host any more")


def unplaceable(status: dict[str, Any]) -> Iterator[Any]:
    """Yield which of the pending jobs no known host could ever run, if any."""
    said = status.get("unplaceable") or {}
    if names := [job["name"] for job in said.get("jobs", ())]:
        yield _indented(terminal.unplaceable(names, said["count"]))


def waiting(status: dict[str, Any]) -> Iterator[Any]:
    """Yield which of the pending jobs wait for data, or for a host that is drained, if any."""
    said = status.get("waiting") or {}
    rows = said.get("jobs", ())
    for line in terminal.waiting(rows):
        yield _indented(line)
    if (more := said.get("count", 0) - len(rows)) > 0:
        yield _indented(f"and {counted(more, 'job')} more; `fleet list` says for what each waits")


def restrained(status: dict[str, Any]) -> Iterator[Any]:
    """Yield the first few hosts that are given no jobs, a line for each reason."""
    rows = status.get("restrained", [])
    for row in rows[:SHOWN]:
        for reason in row["reasons"]:
            yield _indented(f"{row['host']}: {reason}")
    if len(rows) > SHOWN:
        yield _indented(f"... and {len(rows) - SHOWN} more; see `fleet workers`")


def away(status: dict[str, Any]) -> Iterator[Any]:
    """Yield the first few jobs whose hosts are away, and what becomes of them."""
    for row in status.get("away", []):
        yield _indented(f"{row['job']}: {row['text']}")


def _indented(words: str) -> terminal.Line:
    return terminal.Line(f"{' ' * INDENT}{words}", indent=INDENT, style="yellow")
