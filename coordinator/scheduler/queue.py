"""The pending jobs and the open hosts: a decision looks only at what has changed.

Jobs that every known host judges alike stand in one `Line`, beside the open hosts that suit them:
no turn looks at a job that no open host may take.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from operator import itemgetter
from typing import Final

from broker.clock import Timers
from coordinator.jobs.jobs import Job, claim_order
from coordinator.jobs.plan_entries import JobSpec, Plan
from coordinator.scheduler import rules
from coordinator.scheduler.rules import HostView

SPARE: Final = 256  # profiles beyond one for each host, before those of the past are forgotten

Order = tuple[int, str, str, str]  # a job's place in the claim order; the last is its id
Key = tuple[rules.Kind, bool, frozenset[rules.Profile]]  # the kind; in its grace; who takes it


@dataclass(slots=True)
class Line:
    """Jobs that are alike, a heap of them, and the open hosts that may take each of them."""

    key: Key
    jobs: dict[Order, JobSpec] = field(default_factory=dict)
    heap: list[Order] = field(default_factory=list)  # some may have left since
    hosts: dict[str, rules.Rank] = field(default_factory=dict)

    def join(self, view: HostView) -> None:
        """Let an open host have the jobs, if it may."""
        _, waits, takers = self.key
        spec, grace_s = next(iter(self.jobs.values())), 1.0 if waits else 0.0
        if view.profile() in takers and not any(rules.of_kind(spec, view, 0.0, grace_s)):
            self.hosts[view.host] = rules.rank(spec, view)

    def first(self) -> Order | None:
        """Return the first job."""
        while self.heap and self.heap[0] not in self.jobs:
            heappop(self.heap)
        return self.heap[0] if self.heap else None


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
        self._enter(key, (*claim_order(job), job.job_id), job.spec)

    def _enter(self, key: Key, order: Order, spec: JobSpec) -> None:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(key, {order: spec})
            for view in self._open.values():
                line.join(view)
        line.jobs[order] = spec
        heappush(line.heap, order)
        self._at[order[-1]] = (line, order)

    def remove(self, job_id: str) -> None:
        """Take a job out, if it is there."""
        self.later.cancel(job_id)
        if job_id in self._at:
            self._leave(*self._at.pop(job_id))

    def _leave(self, line: Line, order: Order) -> None:
        del line.jobs[order]
        if not line.jobs:
            del self._lines[line.key]

    def learn(self, view: HostView) -> None:
        """Part the jobs by what a host says of each, if it is the first that judges so."""
        profile = view.profile()
        if profile in self._profiles:
            return
        self._profiles[profile] = view
        for line in [*self._lines.values()]:
            kind, waits, takers = line.key
            for order, spec in [*line.jobs.items()]:
                if not any(rules.of_job(spec, view)):
                    self._leave(line, order)
                    self._enter((kind, waits, takers | {profile}), order, spec)

    def admit(self, view: HostView) -> None:
        """Let a host that is open, as it is now, have the jobs that suit it."""
        self.dismiss(view.host)
        self._open[view.host] = view
        for line in self._lines.values():
            line.join(view)

    def dismiss(self, host: str) -> None:
        """Let a host have nothing."""
        if self._open.pop(host, None) is not None:
            for line in self._lines.values():
                line.hosts.pop(host, None)

    def assign(
        self, job_of: Callable[[str], Job], refused_by: Callable[[Job], Container[str]]
    ) -> Iterator[tuple[Job, HostView]]:
        """Yield in claim order each job that a host can take, with the one that suits it best."""
        passed: list[tuple[Line, Order]] = []
        while heads := self._heads():
            order, line = min(heads, key=itemgetter(0))
            while line.heap[:1] == [order]:
                heappop(line.heap)
            job = job_of(order[-1])
            not_now = refused_by(job)
            ranks = [place for host, place in line.hosts.items() if host not in not_now]
            if not ranks:
                passed.append((line, order))
                continue
            best = min(ranks, key=lambda place: rules.preferred(place, job.host))
            view = self._open[best[-1]]
            self.remove(job.job_id)
            self._open[view.host] = busier = replace(view, used_slots=view.used_slots + 1)
            if not busier.free_slots():
                self.dismiss(view.host)
            yield job, view
        for line, order in passed:
            heappush(line.heap, order)

    def _heads(self) -> list[tuple[Order, Line]]:
        lines = (line for line in self._lines.values() if line.hosts)
        return [(order, line) for line in lines if (order := line.first()) is not None]
