"""Which host may take which job now or later, and what a job waits for that none can take now.

A host has to be waited for as long as the slowest of the reasons against it lasts, a job for the
host that it may have soonest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from broker.protocol.messages import WaitsFor
from broker.protocol.reasons import Reason, reason
from coordinator.jobs.plan_entries import JobSpec
from coordinator.jobs.reasons import NATURES, Wait, wait
from coordinator.scheduler import precedence
from coordinator.scheduler.rules import (
    HostView,
    kind_of,
    of_host,
    of_job,
    of_kind,
    prefers_cuda,
    reasons,
)

MOST_HOSTS: Final = 3  # that are named
MOST_REASONS: Final = 4


def soonest(hosts: Mapping[Wait, list[str]]) -> tuple[Wait, list[str]]:
    """Return what a job waits for, and which hosts, by what each is waited for."""
    first = min((one for one, names in hosts.items() if names), default=Wait.EVER)
    return first, [] if first is Wait.EVER else hosts[first]


class Places:
    """What jobs may wait for: the hosts, in groups that no job tells apart but by their names."""

    def __init__(self, views: Iterable[HostView]) -> None:
        """Look at each host once, as if the fleet were not paused."""
        self._groups: dict[Hashable, tuple[HostView, dict[Wait, list[str]]]] = {}
        for view in views:
            _, hosts = self._groups.setdefault((view.size(), view.profile()), (view, {}))
            hosts.setdefault(wait(of_host(view.without("paused"))), []).append(view.host)

    def soonest(self, spec: JobSpec) -> tuple[Wait, list[str]]:
        """Return what a job waits for, and the hosts; free memory is not told apart, nor room."""
        anywhere = replace(spec, allowed_hosts=(), denied_hosts=())
        found: dict[Wait, list[str]] = {}
        for view, hosts in self._groups.values():
            suits = wait((*of_kind(anywhere, view), *of_job(anywhere, view)))
            for awaits, names in hosts.items():
                slowest = max(awaits, suits, Wait.QUIET)
                found.setdefault(slowest, []).extend(spec.admits(names))
        first, names = soonest(found)
        return first, sorted(names)


def waits_for(first: Wait, hosts: Sequence[str]) -> WaitsFor | None:
    """Return for what a job waits that does not come by itself, with the first of its hosts."""
    if first not in {Wait.DATA, Wait.RESUME}:
        return None
    return WaitsFor.model_validate({"what": first.name.lower()} | named(hosts))


def named(hosts: Sequence[str]) -> dict[str, object]:
    """Return the first of some hosts, and whether there are more, for a `WaitsFor`."""
    return {"hosts": tuple(hosts[:MOST_HOSTS]), "more": len(hosts) > MOST_HOSTS}


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that is to be placed. It may not start before `ready_in_s`; durations in seconds.

    `refused` are the hosts that have refused it, each with when it is asked again. `behind` are
    reasons of jobs before it that do not pass. `unusable` are hosts that could not use what it
    needs when they had it last, each with why.
    """

    spec: JobSpec
    created_at: str
    waited_s: float = 0.0
    ready_in_s: float = 0.0
    last_host: str | None = None
    refused: tuple[tuple[str, float], ...] = ()
    behind: tuple[Reason, ...] = ()
    unusable: tuple[tuple[str, Reason], ...] = ()


# By host, with what it may be given the job: at once, with a job's end there, or with the grace's.
Conditions = Mapping[str, Wait]


class Against(NamedTuple):
    """Reasons, and how many hosts have them; `host` where they are one host's alone."""

    reasons: tuple[Reason, ...]
    hosts: int = 1
    host: str | None = None


@dataclass(frozen=True, slots=True)
class Fate:
    """Where a job may go; where it may go nowhere, what it waits for, or what is against it."""

    conditions: Conditions
    awaits: Wait
    awaited: tuple[str, ...] = ()
    against: tuple[Against, ...] = ()


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
        spec, left_s = job.spec, self._grace_s - job.waited_s
        waits = prefers_cuda(spec) and left_s > 0
        is_taken = not any(reason for view in self._profiles for reason in of_job(spec, view))
        own = "" if is_taken else spec.job_id  # the reasons name its hyperparameters
        key = kind_of(spec), waits, own
        if key not in self._known:
            self._known[key] = self._look(spec, left_s)
        fate = self._known[key]
        return _without(fate, dict(job.unusable)) if job.unusable else fate

    def _look(self, spec: JobSpec, left_s: float) -> Fate:
        conditions: dict[str, Wait] = {}
        absent: list[Against] = []
        awaited: dict[Wait, list[str]] = {}
        lasting: Counter[Reason] = Counter()
        for view in self._hosts.values():
            found = [*reasons(spec, view, left_s, self._grace_s)]
            waits = wait(found)
            if self._is_condition(view.host, {NATURES[one.code].wait for one in found}):
                conditions[view.host] = waits
            elif waits is not Wait.EVER:
                awaited.setdefault(max(waits, Wait.QUIET), []).append(view.host)
                holds_up = tuple(one for one in found if one.code != "grace")
                absent.append(Against(holds_up, host=view.host))
            lasting.update({one for one in found if NATURES[one.code].wait is Wait.EVER})
        stuck = [Against((one,), count) for one, count in lasting.most_common(MOST_REASONS)]
        first, hosts = soonest(awaited)
        return Fate(conditions, first, tuple(hosts), tuple(absent[:MOST_REASONS] or stuck))

    def _is_condition(self, host: str, waits: set[Wait]) -> bool:
        """Whether the forecast knows when all of these end: a grace, or a job there of ours."""
        known = {Wait.RELEASE} if self._at_work[host] else set[Wait]()
        return waits <= {Wait.GRACE} or waits <= known


def _without(fate: Fate, unusable: Mapping[str, Reason]) -> Fate:
    """Return what becomes of a job that may be tried again on these hosts, but not start there."""
    left = {host: waits for host, waits in fate.conditions.items() if host not in unusable}
    if left or not fate.conditions:
        return replace(fate, conditions=left)
    against = tuple(Against((unusable[host],), host=host) for host in fate.conditions)
    return Fate(left, Wait.QUIET, tuple(fate.conditions), against[:MOST_REASONS])


def links_of(waiting: Iterable[Waiting], live: Container[str]) -> dict[str, list[str]]:
    """Return by job which jobs before it are still to end: those that are `live`."""
    before = ((job.spec.job_id, job.spec.predecessors()) for job in waiting)
    found = ((job_id, [one for one in ids if one in live]) for job_id, ids in before if ids)
    return {job_id: ids for job_id, ids in found if ids}


def after_links(
    fates: Sequence[tuple[Waiting, Fate]], links: Mapping[str, Collection[str]]
) -> list[tuple[Waiting, Fate]]:
    """Return what becomes of jobs, also of those before which one does not end."""
    failing = (job.spec.job_id for job, fate in fates if job.behind or not fate.conditions)
    cut_off = precedence.cut_off(links, failing)
    names = {job.spec.job_id: job.spec.name for job, _ in fates} if cut_off else {}

    def seen(job: Waiting, fate: Fate) -> Fate:
        reasons, before = job.behind, cut_off.get(job.spec.job_id)
        if not reasons and before is not None:
            name = names[before]
            reasons = (reason(precedence.PASSES, job=name, job_id=before, state="pending"),)
        if not reasons:
            return fate
        return Fate({}, Wait.PREDECESSOR, against=(Against(reasons),))

    return [(job, seen(job, fate)) for job, fate in fates]
