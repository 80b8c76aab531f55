"""Which host may take which job now or later, and what a job waits for that none can take now.

A host has to be waited for as long as the slowest of the reasons against it lasts, a job for the
host that it may have soonest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from broker.protocol.messages import WaitsFor
from coordinator.jobs.plan_entries import JobSpec
from coordinator.scheduler.estimates import Earlier
from coordinator.scheduler.rules import (
    HostView,
    Reason,
    kind_of,
    of_host,
    of_job,
    of_kind,
    prefers_cuda,
    reasons,
)

What = Literal["quiet", "return", "data", "resume"]

MOST_HOSTS: Final = 3  # that are named
MOST_TEXTS: Final = 4
# What passes sooner comes first; what somebody has to do, last.
ORDER: Final[tuple[What, ...]] = ("quiet", "return", "data", "resume")
_BY_REASON: Final[dict[str, What]] = {"barred": "resume", "no-data": "data", "offline": "return"}
_MEMORY: Final = frozenset({"ram-now", "vram-now"})


def what(reasons: Iterable[Reason]) -> What | None:
    """Return what a host is waited for to do; none: something that lasts is against it."""
    found = [*reasons]
    if any(reason.lasts for reason in found):
        return None
    waits: Iterable[What] = (_BY_REASON.get(reason.code, "quiet") for reason in found)
    return max(waits, key=ORDER.index, default="quiet")


class Places:
    """What jobs may wait for: the hosts, in groups that no job tells apart but by their names."""

    def __init__(self, views: Iterable[HostView]) -> None:
        """Look at each host once, as if the fleet were not paused."""
        self._groups: dict[Hashable, tuple[HostView, dict[What, list[str]]]] = {}
        for view in views:
            awaits = what(of_host(replace(view, paused="")))
            if awaits is not None:
                _, hosts = self._groups.setdefault((view.size(), view.profile()), (view, {}))
                hosts.setdefault(awaits, []).append(view.host)

    def soonest(self, spec: JobSpec) -> tuple[What | None, list[str]]:
        """Return what a job waits for, and the hosts; none: no host can ever take it."""
        anywhere = replace(spec, allowed_hosts=(), denied_hosts=())
        found: dict[What, list[str]] = {}
        for view, hosts in self._groups.values():
            suits = what((*of_kind(anywhere, view, 0.0, 0.0), *of_job(anywhere, view)))
            if suits is None:
                continue
            for awaits, names in hosts.items():
                slower = max(awaits, suits, key=ORDER.index)
                found.setdefault(slower, []).extend(spec.admits(names))
        first = min((one for one in found if found[one]), key=ORDER.index, default=None)
        return first, sorted(found[first]) if first else []


def waits_for(first: What | None, hosts: Sequence[str]) -> WaitsFor | None:
    """Return for what a job waits that does not come by itself, with the first of its hosts."""
    if first not in {"data", "resume"}:
        return None
    more = len(hosts) > MOST_HOSTS
    return WaitsFor.model_validate(
        {"what": first, "hosts": tuple(hosts[:MOST_HOSTS]), "more": more}
    )


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that is to be placed. It may not start before `ready_in_s`; durations in seconds.

    `refused` are the hosts that have refused it, each with when it is asked again; `earlier` is
    what an attempt before has left of it.
    """

    spec: JobSpec
    created_at: str
    waited_s: float = 0.0
    ready_in_s: float = 0.0
    last_host: str | None = None
    refused: tuple[tuple[str, float], ...] = ()
    earlier: Earlier | None = None


# host -> when it may take the job: always; after a job there has ended (memory); after the grace
Conditions = Mapping[str, Literal["always", "release", "grace"]]


@dataclass(frozen=True, slots=True)
class Fate:
    """Where a job may go; where it may go nowhere, what it waits for, or what is against it."""

    conditions: Conditions
    awaits: What | None = None
    awaited: tuple[str, ...] = ()
    against: tuple[tuple[str, int], ...] = ()


class Sorter:
    """Finds out where jobs may go; of jobs that are alike one is looked at."""

    def __init__(
        self, hosts: Mapping[str, HostView], at_work: Mapping[str, int], grace_s: float
    ) -> None:
        """`at_work` is how many jobs each host is at; a job that prefers CUDA waits `grace_s`."""
        self._hosts = hosts
        self._at_work = at_work
        self._grace_s = grace_s
        self._profiles = {view.profile(): view for view in hosts.values()}.values()
        self._known: dict[Hashable, Fate] = {}

    def fate(self, job: Waiting) -> Fate:
        """Return what becomes of a job."""
        spec = job.spec
        waits = prefers_cuda(spec) and job.waited_s < self._grace_s
        is_taken = not any(reason for view in self._profiles for reason in of_job(spec, view))
        own = "" if is_taken else spec.job_id  # the reasons name its hyperparameters
        key = kind_of(spec), waits, own
        if key not in self._known:
            self._known[key] = self._look(spec, job.waited_s)
        return self._known[key]

    def _look(self, spec: JobSpec, waited_s: float) -> Fate:
        conditions: dict[str, Literal["always", "release", "grace"]] = {}
        absent: Counter[str] = Counter()
        awaited: dict[What, list[str]] = {}
        texts: Counter[str] = Counter()
        for view in self._hosts.values():
            found = reasons(spec, view, waited_s, self._grace_s)
            codes = {reason.code for reason in found}
            if not codes:
                conditions[view.host] = "always"
            elif codes == {"grace"}:
                conditions[view.host] = "grace"
            elif codes <= _MEMORY and self._at_work[view.host]:
                conditions[view.host] = "release"
            else:
                if (awaits := what(found)) is not None:
                    awaited.setdefault(awaits, []).append(view.host)
                    absent[_away(view, found)] += 1
                texts.update({reason.text: 1 for reason in found if reason.lasts})
        against = tuple((absent or texts).most_common(MOST_TEXTS))
        first = min(awaited, key=ORDER.index, default=None)
        return Fate(conditions, first, tuple(awaited[first]) if first else (), against)


def _away(view: HostView, found: Sequence[Reason]) -> str:
    texts = "; ".join(reason.text for reason in found if reason.code != "grace")
    return f"{view.host}: {texts}"
