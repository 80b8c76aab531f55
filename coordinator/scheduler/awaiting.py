"""What a job waits for that no host can take as things are, though one could: pure functions.

A host has to be waited for as long as the slowest of the reasons against it lasts, a job for the
host that it may have soonest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from broker.protocol.messages import WaitsFor
from coordinator.scheduler.rules import HostView, Reason

What = Literal["quiet", "return", "data", "resume"]

MOST_HOSTS: Final = 3  # that are named
# What passes sooner comes first; what somebody has to do, last.
ORDER: Final[tuple[What, ...]] = ("quiet", "return", "data", "resume")
_BY_REASON: Final[dict[str, What]] = {"barred": "resume", "no-data": "data", "offline": "return"}


def what(reasons: Iterable[Reason]) -> What | None:
    """Return what a host is waited for to do; none: something that lasts is against it."""
    found = [*reasons]
    if any(reason.lasts for reason in found):
        return None
    return max((_BY_REASON.get(reason.code, "quiet") for reason in found), key=ORDER.index)


def of(explained: Iterable[tuple[HostView, Sequence[Reason]]]) -> WaitsFor | None:
    """Return for what a job waits that does not come by itself, by what is against each host.

    None: it waits for time alone, or no host can ever take it.
    """
    hosts: dict[What, list[str]] = {}
    for view, reasons in explained:
        if not reasons:
            return None
        if (one := what(reasons)) is not None:
            hosts.setdefault(one, []).append(view.host)
    soonest = min(hosts, key=ORDER.index, default=None)
    return named(soonest, hosts[soonest]) if soonest in {"data", "resume"} else None


def named(what: Literal["data", "resume"], hosts: Sequence[str]) -> WaitsFor:
    """Return what a job waits for, with the first of its hosts."""
    return WaitsFor(what=what, hosts=tuple(hosts[:MOST_HOSTS]), more=len(hosts) > MOST_HOSTS)
