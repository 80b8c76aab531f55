"""Names of hosts that nobody knows: perhaps mistyped, perhaps of hosts that are yet to come.

A host that is not there yet is no error in a manifest, so these are warnings. While no host at all
is known, nobody can tell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Final

from pydantic import JsonValue

from broker.protocol.hyperschema import meant
from coordinator.jobs.causes import Cause, cause
from coordinator.jobs.plan_entries import JobSpec, Plan

MOST: Final = 8
MOST_PLACES: Final = 3


def closest(name: str, known: Collection[str]) -> str | None:
    """Return the known name that may be meant, if there is one."""
    # What is still told of may have been forgotten as a host.
    return meant(name, sorted({*known} - {name}))


def of_plan(plan: Plan, known: Collection[str]) -> list[Cause]:
    """Return a warning for each host that a manifest names and that is not among the `known`."""
    if not known:
        return []
    jobs: dict[str, list[JsonValue]] = {name: [] for name in plan.hosts if name not in known}
    for spec in plan.jobs:
        for name in spec.named_hosts():
            if name not in known:
                jobs.setdefault(name, []).append(spec.name)
    # To find which one may be meant takes tens of milliseconds among a thousand.
    warnings = [
        cause(
            "unknown_name",
            name=name,
            meant=closest(name, known),
            declared=name in plan.hosts,
            jobs=of[:MOST_PLACES],
            more=max(0, len(of) - MOST_PLACES),
        )
        for name, of in islice(jobs.items(), MOST)
    ]
    if len(jobs) > MOST:
        warnings.append(cause("more_unknown", count=len(jobs) - MOST))
    return warnings


def allowed(spec: JobSpec, known: Collection[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the first of a job's allowed_hosts that nobody knows, each with what may be meant."""
    unknown = (name for name in spec.allowed_hosts if name not in known)
    return ((name, closest(name, known)) for name in islice(unknown, MOST))
