"""How an answer to `why` is laid out for people, alike wherever it is shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from broker.sentences import size

CAN: Final = "can take it"


def waits(waits_for: Mapping[str, Any], *, several: bool = False) -> str:
    """Say what a job waits for, or `several` of them: `waits for data on pi`."""
    names = [str(host) for host in waits_for["hosts"]]
    hosts = ", ".join(names) + (" and others" if waits_for.get("more") else "")
    verb = "wait" if several else "waits"
    if waits_for["what"] == "data":
        return f"{verb} for data on {hosts}"
    which = f" {hosts}`" if len(names) == 1 else f"` of {hosts}"
    return f"{verb} for `fleet resume{which}"


def awaits(waits_for: Mapping[str, Any]) -> str:
    """Return that as it stands where a host would."""
    return f"awaits {waits_for['what']}"


def no_room(lack: Mapping[str, Any], *, several: bool = False) -> str:
    """Say that a result waits for the coordinator's disk, or several, and what that lacks."""
    wait, need = ("wait", "they need") if several else ("waits", "it needs")
    needed, free, reserve = (size(lack[f"{key}_bytes"]) for key in ("needed", "free", "reserve"))
    return (
        f"{wait} for room on the coordinator's disk: {need} {needed} beside a reserve of {reserve},"
        f" and {free} is free"
    )


def wished(why: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return a title, and what would open more hosts to the job; nothing where nothing would."""
    more = "open more hosts to it" if why.get("suitable") else "change that"
    return f"What would {more}:", [str(one) for one in why.get("remedies") or ()]


def alike(
    hosts: Sequence[Mapping[str, Any]], said: Iterable[str] = ()
) -> dict[tuple[str, ...], list[str]]:
    """Return the hosts by the reasons against them, without those that were `said`."""
    known = frozenset(said)
    nothing = "nothing else is against it" if known else CAN
    found: dict[tuple[str, ...], list[str]] = {}
    for host in hosts:
        own = tuple(str(one) for one in host["reasons"] if one not in known)
        found.setdefault(own or (nothing,), []).append(host["host"])
    return found
