"""Names of hosts that nobody knows: perhaps mistyped, perhaps of hosts that are yet to come.

A host that is not there yet is no error in a manifest, so these are warnings. While no host at all
is known, nobody can tell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

from broker.protocol.hyperschema import meant
from coordinator.jobs.plan_entries import JobSpec, Plan

MOST: Final = 8
MOST_PLACES: Final = 3


def doubt(name: str, known: Collection[str]) -> str:
    """Say that no host is called so, and which one may be meant."""
    close = closest(name, known)
    hint = "" if close is None else f"; did you mean {close!r}?"
    return f"no host is called {name!r}{hint}"


def closest(name: str, known: Collection[str]) -> str | None:
    """Return the known name that may be meant, if there is one."""
    # What is still told of may have been forgotten as a host.
    return meant(name, sorted({*known} - {name}))


def of_plan(plan: Plan, known: Collection[str]) -> list[str]:
    """Return a warning for each host that a manifest names and that is not among the `known`."""
    if not known:
        return []
    places: dict[str, list[str]] = {}
    for name in plan.hosts:
        if name not in known:
            places.setdefault(name, []).append(f"[hosts.{name}]")
    for spec in plan.jobs:
        for name in _unknown(spec, known):
            places.setdefault(name, []).append(_job(spec.name))
    # To find which one may be meant takes tens of milliseconds among a thousand.
    told = islice(places.items(), MOST)
    warnings = [f"{_some(where)}: {_either(name, known)}" for name, where in told]
    if len(places) > MOST:
        warnings.append(f"and {len(places) - MOST} more hosts that nobody knows")
    return warnings


def _unknown(spec: JobSpec, known: Collection[str]) -> Iterable[str]:
    return (name for name in spec.named_hosts() if name not in known)


def _job(name: str) -> str:
    return name if " " in name else f"job {name}"  # one without a name is called "job 9" already


def _either(name: str, known: Collection[str]) -> str:
    said = doubt(name, known)
    return f"{said.removesuffix('?')}, or is it yet to come?" if "?" in said else f"{said} yet"


def _some(where: list[str]) -> str:
    more = f" and {len(where) - MOST_PLACES} more" if len(where) > MOST_PLACES else ""
    return ", ".join(where[:MOST_PLACES]) + more
