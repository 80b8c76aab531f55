"""Who may go where, as far as that does not depend on the moment: what a forecast begins with."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from coordinator.jobs.plan_entries import JobSpec
from coordinator.scheduler.awaiting import ORDER, What, what
from coordinator.scheduler.estimates import Earlier
from coordinator.scheduler.rules import HostView, Reason, reasons

MOST_TEXTS: Final = 4
_MEMORY: Final = frozenset({"ram-now", "vram-now"})


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
    """Finds out where jobs may go; jobs that are alike are looked at once."""

    def __init__(
        self, hosts: Mapping[str, HostView], at_work: Mapping[str, int], grace_s: float
    ) -> None:
        """`at_work` is how many jobs each host is at; a job that prefers CUDA waits `grace_s`."""
        self._hosts = hosts
        self._at_work = at_work
        self._grace_s = grace_s
        self._by_name = any(
            view.policy.allow_jobs or view.policy.deny_jobs for view in hosts.values()
        )
        self._known: dict[tuple[Any, ...], Fate] = {}

    def fate(self, job: Waiting) -> Fate:
        """Return what becomes of a job."""
        spec = job.spec
        in_grace = spec.needs.prefer_cuda and job.waited_s < self._grace_s
        key = (
            spec.model,
            spec.needs,
            spec.allowed_hosts,
            spec.denied_hosts,
            json.dumps(dict(spec.hyper), sort_keys=True),
            spec.name if self._by_name else None,
            in_grace,
        )
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
        soonest = min(awaited, key=ORDER.index, default=None)
        hosts = () if soonest is None else tuple(awaited[soonest])
        return Fate(conditions, soonest, hosts, against)


def _away(view: HostView, found: Sequence[Reason]) -> str:
    texts = "; ".join(reason.text for reason in found if reason.code != "grace")
    return f"{view.host}: {texts}"
