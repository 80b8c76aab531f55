"""The pending jobs and the open hosts: a decision looks only at what has changed.

Jobs of one kind (`rules.kind_of`) stand in one `Line`, beside the open hosts that suit the kind.
Of these, hosts that judge single jobs alike share a `Lane`. A job that does not suit a lane leaves
it, so no job is judged twice by the same rules: between two decisions a lane that has hosts has no
jobs but those that its hosts have just refused.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

from broker.clock import Timers
from coordinator.jobs.jobs import Job, claim_order
from coordinator.jobs.plan_entries import JobSpec
from coordinator.scheduler.judges import Judges
from coordinator.scheduler.rules import (
    HostView,
    Rank,
    kind_of,
    of_kind,
    preferred,
    prefers_cuda,
    rank,
)

MOST_LANES: Final = 256  # of a line, before those without hosts are dropped

Order = tuple[int, str, str, str]  # a job's place in the claim order; the last is its id


@dataclass(slots=True)
class Lane:
    """Hosts that judge jobs alike, and a heap of jobs; some may have left the line since."""

    jobs: list[Order]
    hosts: dict[str, Rank] = field(default_factory=dict)


@dataclass(slots=True)
class Line:
    """The jobs of one kind, and the hosts that suit it. `spec` is that of any of them."""

    spec: JobSpec
    waits: bool  # for a CUDA host
    jobs: dict[Order, None] = field(default_factory=dict)
    lanes: dict[Hashable, Lane] = field(default_factory=dict)

    def lane(self, judge: Hashable) -> Lane:
        """Return the lane of the hosts that judge so."""
        if judge not in self.lanes:
            if len(self.lanes) >= MOST_LANES:
                self.lanes = {key: lane for key, lane in self.lanes.items() if lane.hosts}
            self.lanes[judge] = Lane([*self.jobs])
            heapify(self.lanes[judge].jobs)
        return self.lanes[judge]

    def add(self, order: Order) -> None:
        """Let a job join."""
        self.jobs[order] = None
        for lane in self.lanes.values():
            heappush(lane.jobs, order)

    def first(self) -> Order | None:
        """Return the first job that one of the hosts may take."""
        found = []
        for lane in self.lanes.values():
            if not lane.hosts:
                continue
            while lane.jobs and lane.jobs[0] not in self.jobs:
                heappop(lane.jobs)
            found += lane.jobs[:1]
        return min(found, default=None)

    def take(self, order: Order) -> list[Lane]:
        """Return the lanes that have hosts, and this job as their first; it leaves them."""
        found = [lane for lane in self.lanes.values() if lane.hosts and lane.jobs[:1] == [order]]
        for lane in found:
            while lane.jobs[:1] == [order]:
                heappop(lane.jobs)
        return found


class Queue:
    """See the module."""

    def __init__(self) -> None:
        """Start without jobs and hosts."""
        self.judges = Judges()
        self._clear()

    def _clear(self) -> None:
        self._basis: tuple[object, object, float] = (None, None, -1.0)
        self._lines: dict[Hashable, Line] = {}
        self._at: dict[str, tuple[Hashable, Order]] = {}
        self._later: Timers[str] = Timers()
        self._open: dict[str, HostView] = {}

    def begin_anew(self, hosts: object, plan: object, grace_s: float) -> bool:
        """Forget everything if one of these was replaced since the last call; return whether."""
        was_hosts, was_plan, was_grace_s = self._basis
        if was_hosts is hosts and was_plan is plan and was_grace_s == grace_s:
            return False
        self._clear()
        self._basis = (hosts, plan, grace_s)
        return True

    def kinds(self) -> Iterator[list[str]]:
        """Yield the ids of the jobs of each kind; those whose time has not come one by one."""
        for line in self._lines.values():
            yield [order[-1] for order in line.jobs]
        yield from ([job_id] for job_id in self._later if job_id not in self._at)

    def place(self, job: Job, ready_s: float, grace_over_s: float, now_s: float) -> None:
        """Put a pending job where it belongs: a retry, or a CUDA job in its grace, waits."""
        self.remove(job.job_id)
        if ready_s > now_s:
            self._later.set(job.job_id, ready_s)
            return
        waits = prefers_cuda(job.spec) and now_s < grace_over_s
        if waits:
            self._later.set(job.job_id, grace_over_s)
        kind, order = kind_of(job.spec, waits=waits), (*claim_order(job), job.job_id)
        if kind not in self._lines:
            self._lines[kind] = Line(job.spec, waits)
            for view in self._open.values():
                self._join(self._lines[kind], view)
        self._at[job.job_id] = (kind, order)
        self._lines[kind].add(order)

    def remove(self, job_id: str) -> None:
        """Take a job out, if it is there."""
        self._later.cancel(job_id)
        self.judges.forget(job_id)
        if job_id in self._at:
            kind, order = self._at.pop(job_id)
            del self._lines[kind].jobs[order]
            if not self._lines[kind].jobs:
                del self._lines[kind]

    def due(self, now_s: float) -> list[str]:
        """Return the ids of the jobs whose time has come; they are to be placed again."""
        return self._later.due(now_s)

    def next_deadline(self) -> float | None:
        """Return when the next job's time comes, or none."""
        return self._later.next_deadline()

    def admit(self, view: HostView) -> None:
        """Let a host that is open, as it is now, have the jobs that suit it."""
        self.dismiss(view.host)
        self._open[view.host] = view
        for line in self._lines.values():
            self._join(line, view)

    def dismiss(self, host: str) -> None:
        """Let a host have nothing."""
        if self._open.pop(host, None) is not None:
            for line in self._lines.values():
                for lane in line.lanes.values():
                    lane.hosts.pop(host, None)

    def assign(
        self, job_of: Callable[[str], Job], refused_by: Callable[[Job], Container[str]]
    ) -> Iterator[tuple[Job, HostView]]:
        """Yield in claim order each job that a host can take, with the one that suits it best."""
        refused: list[tuple[Lane, Order]] = []
        while (found := self._first()) is not None:
            order, line = found
            job = job_of(order[-1])
            lanes = [lane for lane in line.take(order) if self._takes(lane, job.spec)]
            not_now = refused_by(job)
            ranks = [
                place for lane in lanes for host, place in lane.hosts.items() if host not in not_now
            ]
            if not ranks:
                refused += [(lane, order) for lane in lanes]
                continue
            best = min(ranks, key=lambda place: preferred(place, job.host))
            view = self._open[best[-1]]
            self.remove(job.job_id)
            self._give_slot(view)
            yield job, view
        for lane, order in refused:
            heappush(lane.jobs, order)

    def _first(self) -> tuple[Order, Line] | None:
        lines = ((line.first(), line) for line in self._lines.values())
        waiting = [(order, line) for order, line in lines if order is not None]
        return min(waiting, key=lambda one: one[0], default=None)

    def _takes(self, lane: Lane, spec: JobSpec) -> bool:
        return self.judges.takes(spec, self._open[next(iter(lane.hosts))])

    def _give_slot(self, view: HostView) -> None:
        busier = view.with_one_more()
        if busier.free_slots():
            self._open[view.host] = busier
        else:
            self.dismiss(view.host)

    def _join(self, line: Line, view: HostView) -> None:
        waited_s, grace_s = (0.0, 1.0) if line.waits else (0.0, 0.0)
        if not any(of_kind(line.spec, view, waited_s, grace_s)):
            judge = self.judges.of(view, line.spec.model)
            line.lane(judge).hosts[view.host] = rank(line.spec, view)
