"""The pending jobs and the open hosts: a decision looks only at what has changed.

Jobs that every known host judges alike stand in one `Line`, beside the open hosts that suit them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Final

from broker.clock import Timers
from coordinator.jobs.jobs import Job, claim_order
from coordinator.jobs.plan_entries import Plan
from coordinator.scheduler import rules
from coordinator.scheduler.rules import HostView

SPARE: Final = 256  # profiles beyond one for each host, before those of the past are forgotten
Order = tuple[int, str, str, str]  # a job's place in the claim order; the last is its id
Key = tuple[rules.Kind, bool, frozenset[rules.Profile]]  # the kind; in its grace; who takes it


@dataclass(slots=True)
class Line:
    """Jobs that are alike, a heap of them, and the open hosts that may take each of them."""

    key: Key
    jobs: dict[Order, Job] = field(default_factory=dict)
    heap: list[Order] = field(default_factory=list)  # some may have left since
    hosts: dict[str, rules.Rank] = field(default_factory=dict)

    def join(self, view: HostView) -> None:
        """Let an open host have the jobs, if it may."""
        _, waits, takers = self.key
        spec = next(iter(self.jobs.values())).spec
        if view.profile() in takers and not any(rules.of_kind(spec, view, float(waits))):
            self.hosts[view.host] = rules.rank(spec, view)


class Queue:
    """See the module."""

    def __init__(self, plan: Plan | None = None) -> None:
        """Start without jobs and hosts. `later` are the jobs whose time comes yet."""
        self.later: Timers[str] = Timers()
        self._plan = plan
        self._profiles: dict[rules.Profile, HostView] = {}
        self._lines: dict[Key, Line] = {}
        self._at: dict[str, tuple[Line, Order]] = {}
        self._open: dict[str, HostView] = {}

    def is_of(self, plan: Plan | None, hosts: int) -> bool:
        """Return whether it holds for this plan, and not for far more hosts than there are."""
        return self._plan is plan and len(self._profiles) <= hosts + SPARE

    def alike(self) -> Iterator[list[str]]:
        """Yield the ids of jobs that are alike; of those that wait for a retry each by itself."""
        for line in self._lines.values():
            yield [order[-1] for order in line.jobs]
        yield from ([job_id] for job_id in self.later if job_id not in self._at)

    def place(self, job: Job, ready_s: float, grace_over_s: float, now_s: float) -> None:
        """Put a pending job where it belongs: a retry, or a CUDA job in its grace, waits."""
        self.remove(job.job_id)
        if ready_s > now_s:
            self.later.set(job.job_id, ready_s)
            return
        waits = rules.prefers_cuda(job.spec) and now_s < grace_over_s
        if waits:
            self.later.set(job.job_id, grace_over_s)
        profiles = self._profiles.items()
        takers = frozenset(one for one, view in profiles if not any(rules.of_job(job.spec, view)))
        key = rules.kind_of(job.spec), waits, takers
        self._enter(key, (*claim_order(job), job.job_id), job)

    def _enter(self, key: Key, order: Order, job: Job) -> None:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(key, {order: job})
            for view in self._open.values():
                line.join(view)
        line.jobs[order] = job
        heappush(line.heap, order)
        self._at[order[-1]] = (line, order)

    def remove(self, job_id: str) -> None:
        """Take a job out, if it is there."""
        self.later.cancel(job_id)
        if job_id in self._at:
            line, order = self._at.pop(job_id)
            del line.jobs[order]
            if not line.jobs:
                del self._lines[line.key]

    def see(self, view: HostView) -> None:
        """Take a host as it is now: one that is open has the jobs that suit it."""
        self.leave(view.host)
        self._learn(view)
        if not any(rules.of_host(view)):
            self._open[view.host] = view
            for line in self._lines.values():
                line.join(view)

    def leave(self, host: str) -> None:
        """Let a host have nothing."""
        if self._open.pop(host, None) is not None:
            for line in self._lines.values():
                line.hosts.pop(host, None)

    def _learn(self, view: HostView) -> None:
        """Part the jobs by what a host says of each, if it is the first that judges so."""
        profile = view.profile()
        if profile in self._profiles:
            return
        self._profiles[profile] = view
        for line in [*self._lines.values()]:
            kind, waits, takers = line.key
            for order, job in [*line.jobs.items()]:
                if not any(rules.of_job(job.spec, view)):
                    del line.jobs[order]
                    self._enter((kind, waits, takers | {profile}), order, job)
        self._lines = {key: line for key, line in self._lines.items() if line.jobs}

    def assign(self, refused_by: Callable[[Job], Container[str]]) -> Iterator[tuple[Job, HostView]]:
        """Yield in claim order each job that a host can take, with the one that suits it best."""
        passed: list[tuple[Line, Order]] = []
        while head := min(self._heads(), key=lambda one: one[0], default=None):
            order, line = head
            heappop(line.heap)
            job = line.jobs[order]
            not_now = refused_by(job)
            ranks = [place for host, place in line.hosts.items() if host not in not_now]
            if not ranks:
                passed.append((line, order))
                continue
            best = min(ranks, key=lambda place: rules.preferred(place, job.host))
            view = self._open[best[-1]]
            self.remove(job.job_id)
            self.see(replace(view, used_slots=view.used_slots + 1))
            yield job, view
        for line, order in passed:
            heappush(line.heap, order)

    def _heads(self) -> Iterator[tuple[Order, Line]]:
        for line in self._lines.values():
            while line.heap and line.heap[0] not in line.jobs:
                heappop(line.heap)
            if line.heap and line.hosts:
                yield line.heap[0], line
