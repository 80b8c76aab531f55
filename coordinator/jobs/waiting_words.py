"""What jobs and their results wait for, in words."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import shorten
from typing import Any, Final

from broker.figures import counted, size
from coordinator.jobs.agent_words import fault_words
from coordinator.jobs.reasons import UNUSABLE

_Told = Mapping[str, Any]
_MOST_CHARS: Final = 120  # of why a job waits, beside its row; `fleet why` has the rest

# How a job is that comes before another one, and what lets that go on, if it does not by itself.
_STATES: Final[Mapping[str, tuple[str, str]]] = {
    "uploading": ("{job}, whose result is on the way", ""),
    "failed": ("{job}, which failed", "`fleet requeue {job}` tries it again"),
    "cancelled": ("{job}, which was cancelled", "`fleet requeue {job}` brings it back"),
    "orphaned": ("{job}, which is no longer in the manifest", "put it back"),
    "gone": ("the result of {job}, which is gone from the store",
             "`fleet requeue {job}` makes it again"),
    "unknown": ("{job}, which the fleet does not know", "`fleet reload` may bring it back"),
}  # fmt: skip
_LASTING: Final = _STATES.keys() - {"uploading"}


def predecessor(told: _Told) -> tuple[str, str]:
    """Return which job another one waits for, and what lets that go on, if that is needed."""
    what, lifted = _STATES.get(str(told["state"]), ("{job}, which is {state}", ""))
    return what.format(**told), lifted.format(**told)


def passes(waits_for: _Told) -> bool:
    """Whether what a job waits for comes by itself: a job before it that goes on."""
    return waits_for["what"] == "job" and waits_for["state"] not in _LASTING


def waits(waits_for: _Told, *, several: bool = False) -> str:
    """Say what a job waits for, or `several` of them: `waits for data on pi`."""
    verb = "wait" if several else "waits"
    if waits_for["what"] == "job":
        what, lifted = predecessor(waits_for)
        return f"{verb} for {'; '.join(filter(None, (what, lifted)))}"
    names = [str(host) for host in waits_for["hosts"]]
    hosts = ", ".join(names) + (" and others" if waits_for.get("more") else "")
    if waits_for["what"] == "data":
        return f"{verb} for data on {hosts}"
    if waits_for["what"] in UNUSABLE:
        why = shorten(fault_words(waits_for.get("fault")), _MOST_CHARS, placeholder=" …")
        return f"{verb} for its {waits_for['what']}, which {hosts} could not use: {why}"
    which = f" {hosts}`" if len(names) == 1 else f"` of {hosts}"
    return f"{verb} for `fleet resume{which}"


def awaits(waits_for: _Told) -> str:
    """Return that as it stands where a host would."""
    return f"awaits {waits_for['job' if waits_for['what'] == 'job' else 'what']}"


def held_up(host: str, fault: _Told) -> str:
    """Say that a job's result waits at its host, and why it is not bundled."""
    return f"waits with its result on {host}: {fault_words(fault)}"


def no_room(lack: _Told, *, several: bool = False) -> str:
    """Say that a result waits for the coordinator's disk, or several, and what that lacks."""
    wait, need = ("wait", "they need") if several else ("waits", "it needs")
    needed, free, reserve = (size(lack[f"{key}_bytes"]) for key in ("needed", "free", "reserve"))
    return (
        f"{wait} for room on the coordinator's disk: {need} {needed} beside a reserve of {reserve},"
        f" and {free} is free"
    )


def low_disk(lack: _Told) -> str:
    """Say how many results wait for the coordinator's disk, and what that lacks."""
    return f"{counted(lack['jobs'], 'finished job')} {no_room(lack, several=lack['jobs'] > 1)}"
