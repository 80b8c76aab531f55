"""The pending jobs and the free hosts, kept so that a decision looks only at what has changed.

Jobs of one kind (`matchmaking.kind_of`) stand in one `Line`, in claim order, with the open hosts
that suit the kind. Of these, hosts that judge a single job alike (the same trainer, the same
allow_jobs and deny_jobs) share a `Lane`, which remembers how far down the line it has looked: no
job is judged twice by the same rules, however many of them do not fit.

Between two decisions this holds: of the jobs in the lines, none has a host in its line that takes
it. So the next decision begins where a job or a host was put into a line since.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from itertools import islice
from typing import Any, Final, TypeVar

from broker.clock import Timers
from broker.protocol.messages import TrainerInfo
from coordinator.jobs.jobs import Job, claim_order
from coordinator.jobs.plan_entries import JobSpec
from coordinator.scheduler.rules import (
    HostView,
    Rank,
    kind_of,
    lasting,
    preferred,
    prefers_cuda,
    rank,
    suits_kind,
    takes,
)

EMPTY_LINES: Final = 8  # that are kept ready for the next job of their kind
MOST_LANES: Final = 256  # of a line, before those without hosts are dropped
_FEW: Final = 8

Order = tuple[int, str, str, str]  # a job's place in the claim order; the last is its id
_FIRST: Final[Order] = (-(2**63), "", "", "")

T = TypeVar("T", bound=tuple[Any, ...])


@dataclass(slots=True)
class Lane:
    """Hosts that judge jobs alike, best first.

    Jobs up to `seen` were looked at. Those among them that a host takes, but may not have now (it
    has just refused them), or that came later, are `aside`.
    """

    hosts: list[Rank] = field(default_factory=list)
    seen: Order = _FIRST
    aside: list[Order] = field(default_factory=list)

    def next(self, jobs: list[Order], after: Order) -> Order | None:
        """Return the first job behind `after` that is to be looked at."""
        at = bisect_right(jobs, max(self.seen, after))
        found = jobs[at : at + 1]
        at = bisect_right(self.aside, after)
        return min(found + self.aside[at : at + 1], default=None)

    def looks_at(self, order: Order) -> bool:
        """Whether a job is still to be looked at; take note that it is looked at now."""
        if order > self.seen:
            self.seen = order
            return True
        return _discard(self.aside, order)


@dataclass(slots=True, eq=False)
class Line:
    """The jobs of one kind in claim order, and the hosts that suit it. `spec` is any of theirs."""

    kind: Hashable
    spec: JobSpec
    waits: bool
    number: int
    jobs: list[Order] = field(default_factory=list)
    lanes: dict[Hashable, Lane] = field(default_factory=dict)

    def add(self, orders: Collection[Order]) -> None:
        """Let jobs join the line."""
        _add(self.jobs, orders)
        for lane in self.lanes.values():
            _add(lane.aside, [order for order in orders if order <= lane.seen])

    def discard(self, order: Order) -> None:
        """Take a job out of the line."""
        _discard(self.jobs, order)
        for lane in self.lanes.values():
            _discard(lane.aside, order)

    def has_hosts(self) -> bool:
        """Whether there is a host for it."""
        return any(lane.hosts for lane in self.lanes.values())

    def next(self, after: Order) -> Order | None:
        """Return the first job behind `after` that one of the hosts is to look at."""
        found = [lane.next(self.jobs, after) for lane in self.lanes.values() if lane.hosts]
        return min((order for order in found if order is not None), default=None)


@dataclass(slots=True)
class _Schemas:
    """What trainers take, as text, found when it is first asked for."""

    trainers: Mapping[str, TrainerInfo]
    texts: dict[str, str] = field(default_factory=dict)

    def of(self, model: str) -> str:
        """Return the schema of a model's hyperparameters."""
        if model not in self.texts:
            schema = self.trainers[model].hyper_schema
            self.texts[model] = sys.intern(json.dumps(schema, sort_keys=True))
        return self.texts[model]


@dataclass(slots=True)
class _Open:
    """A host that takes jobs: where it stands, and what makes it judge as it does."""

    view: HostView
    places: dict[Line, tuple[Hashable, Rank]] = field(default_factory=dict)


class Board:
    """See the module."""

    def __init__(self) -> None:
        """Start without jobs and hosts."""
        self.clear()

    def clear(self) -> None:
        """Forget all jobs and hosts."""
        self._rests_on: tuple[object, object, float] = (None, None, -1.0)
        self._lines: dict[Hashable, Line] = {}
        self._anywhere: dict[Line, None] = {}
        self._pinned: dict[str, dict[Line, None]] = {}  # by the hosts that their jobs may go to
        self._empty: dict[Line, None] = {}
        self._numbers = 0
        self._at: dict[str, tuple[Line, Order]] = {}
        self._later: Timers[str] = Timers()
        self._open: dict[str, _Open] = {}
        self._schemas: dict[str, _Schemas] = {}  # by host
        self._lately: dict[int, _Schemas] = {}  # hosts may share them: by the trainers' identity
        self._verdicts: dict[Hashable, dict[str, bool]] = {}
        self._changed: dict[Line, None] = {}

    def kinds(self) -> Iterator[list[str]]:
        """Yield the ids of the jobs of each kind; those whose time has not come one by one."""
        for line in self._lines.values():
            yield [order[-1] for order in line.jobs]
        for job_id in self._later:
            if job_id not in self._at:
                yield [job_id]

    def rests_on_others(self, hosts: object, plan: object, grace_s: float) -> bool:
        """Forget everything if these were replaced since the last call; return whether."""
        was_hosts, was_plan, was_grace_s = self._rests_on
        if was_hosts is hosts and was_plan is plan and was_grace_s == grace_s:
            return False
        self.clear()
        self._rests_on = (hosts, plan, grace_s)
        return True

    # Jobs

    def place(
        self, jobs: Iterable[tuple[Job, float, float]], now_s: float, grace_s: float
    ) -> None:  # fmt: skip
        """Put pending jobs where they belong.

        Each comes with when it may be tried (a retry waits), and since when it is pending. Those
        that prefer CUDA wait for it until `grace_s` after that, in a line of their own.
        """
        joining: dict[Line, list[Order]] = {}
        for job, ready_s, since_s in jobs:
            self.remove(job.job_id)
            if ready_s > now_s:
                self._later.set(job.job_id, ready_s)
                continue
            waits = prefers_cuda(job.spec) and now_s < since_s + grace_s
            if waits:
                self._later.set(job.job_id, since_s + grace_s)
            line = self._line(job.spec, waits=waits)
            order = (*claim_order(job), job.job_id)
            self._at[job.job_id] = (line, order)
            joining.setdefault(line, []).append(order)
        for line, orders in joining.items():
            line.add(orders)
            self._changed[line] = None

    def remove(self, job_id: str) -> None:
        """Take a job off the board, if it is there."""
        self._later.cancel(job_id)
        for known in self._verdicts.values():
            known.pop(job_id, None)
        line, order = self._at.pop(job_id, (None, _FIRST))
        if line is not None:
            line.discard(order)
            if not line.jobs:
                self._empty[line] = None
                self._drop_empty()

    def due(self, now_s: float) -> list[str]:
        """Return the ids of the jobs whose time has come; they are to be placed again."""
        return self._later.due(now_s)

    def next_deadline(self) -> float | None:
        """Return when the next job's time comes, or none."""
        return self._later.next_deadline()

    # Hosts

    def admit(self, view: HostView) -> None:
        """Let a host that is open, as it is now, have the jobs that suit it."""
        self.dismiss(view.host)
        entry = self._open[view.host] = _Open(view)
        for line in [*self._anywhere, *self._pinned.get(view.host, ())]:
            self._join(line, entry)

    def forget(self, host: str) -> None:
        """A host is gone."""
        self.dismiss(host)
        self._schemas.pop(host, None)

    def dismiss(self, host: str) -> None:
        """Let a host have nothing."""
        entry = self._open.pop(host, None)
        for line, (lane, place) in entry.places.items() if entry is not None else ():
            _discard(line.lanes[lane].hosts, place)

    # The choice

    def offers(self) -> Iterator[tuple[str, Line, Order]]:
        """Yield the jobs that a host might take, in claim order, by id; settle each in its turn.

        To be asked again after each: `choose` and `admit` change what comes next.
        """
        heap = [
            (order, line.number, line)
            for line in self._changed
            if (order := line.next(_FIRST)) is not None
        ]
        self._changed = {}
        heapify(heap)
        while heap:
            order, number, line = heap[0]
            if line.has_hosts():
                yield order[-1], line, order
            following = line.next(order)
            if following is None:
                heappop(heap)
            else:
                heapreplace(heap, (following, number, line))

    def choose(
        self, job: Job, line: Line, order: Order, refused_by: Container[str]
    ) -> HostView | None:  # fmt: skip
        """Return the host that suits the job best, as `matchmaking.choose` does, or none."""
        found: list[Rank] = []
        for lane in line.lanes.values():
            if lane.hosts and lane.looks_at(order) and self._in(lane, job.spec):
                insort(lane.aside, order)  # until it is removed, since it was assigned
                found += self._best(line, lane, job.host, refused_by)
        if not found:
            return None
        best = min(found, key=lambda one: preferred(one, job.host))
        return self._open[best[-1]].view

    def _in(self, lane: Lane, spec: JobSpec) -> bool:
        return self.takes(spec, self._open[lane.hosts[0][-1]].view)

    def takes(self, spec: JobSpec, view: HostView) -> bool:
        """Return what `matchmaking.takes` does, from memory where it was asked before."""
        known = self._verdicts.setdefault(self._filter(view, spec.model), {})
        if len(self._verdicts) > MOST_LANES:
            self._verdicts.clear()
        verdict = known.get(spec.job_id)
        if verdict is None:
            verdict = known[spec.job_id] = takes(spec, view)
        return verdict

    def judgement(self, view: HostView) -> Hashable:
        """Return what hosts have in common which, in the long run, could take the same jobs."""
        models = sorted(view.capability.trainers)
        return lasting(view), tuple(self._filter(view, model) for model in models)

    def _filter(self, view: HostView, model: str) -> Hashable:
        """Return what hosts have in common for which `takes` says the same of a model's jobs."""
        trainers = view.capability.trainers
        schemas = self._schemas.get(view.host)
        if schemas is None or schemas.trainers is not trainers:
            schemas = self._lately.get(id(trainers))
        if schemas is None or schemas.trainers is not trainers:
            schemas = _Schemas(trainers)
            if len(self._lately) >= MOST_LANES:
                self._lately.clear()
            self._lately[id(trainers)] = schemas
        self._schemas[view.host] = schemas
        return schemas.of(model), view.policy.allow_jobs, view.policy.deny_jobs

    def _best(
        self, line: Line, lane: Lane, last_host: str | None, refused_by: Container[str]
    ) -> Iterator[Rank]:
        """Yield the best of the lane's hosts, and the one where the job was last."""
        yield from islice((one for one in lane.hosts if one[-1] not in refused_by), 1)
        if last_host in self._open and last_host not in refused_by:
            key, place = self._open[last_host].places.get(line, (None, None))
            if place is not None and line.lanes.get(key) is lane:
                yield place

    # Lines

    def _line(self, spec: JobSpec, *, waits: bool) -> Line:
        kind = kind_of(spec, waits=waits)
        line = self._lines.get(kind)
        if line is None:
            self._numbers += 1
            line = self._lines[kind] = Line(kind, spec, waits, self._numbers)
            for lines in self._homes(line):
                lines[line] = None
            names = dict.fromkeys(spec.allowed_hosts) or self._open
            for entry in [self._open[name] for name in names if name in self._open]:
                self._join(line, entry)
        self._empty.pop(line, None)
        return line

    def _homes(self, line: Line) -> list[dict[Line, None]]:
        hosts = line.spec.allowed_hosts
        return [self._pinned.setdefault(host, {}) for host in hosts] or [self._anywhere]

    def _join(self, line: Line, entry: _Open) -> None:
        if not suits_kind(line.spec, entry.view, waits=line.waits):
            return
        key, place = self._filter(entry.view, line.spec.model), rank(line.spec, entry.view)
        lane = line.lanes.get(key)
        if lane is None:
            if len(line.lanes) >= MOST_LANES:
                line.lanes = {one: lane for one, lane in line.lanes.items() if lane.hosts}
            lane = line.lanes[key] = Lane()
        insort(lane.hosts, place)
        entry.places[line] = (key, place)
        if line.jobs:
            self._changed[line] = None

    def _drop_empty(self) -> None:
        if len(self._empty) <= EMPTY_LINES:
            return
        line = next(iter(self._empty))
        del self._empty[line], self._lines[line.kind]
        self._changed.pop(line, None)
        for host in {*line.spec.allowed_hosts}:
            del self._pinned[host][line]
            if not self._pinned[host]:
                del self._pinned[host]
        self._anywhere.pop(line, None)
        for lane in line.lanes.values():
            for place in lane.hosts:
                del self._open[place[-1]].places[line]


def _add(orders: list[Order], more: Collection[Order]) -> None:
    """Insert into a sorted list: many at once are sooner sorted than inserted one by one."""
    if len(more) > _FEW:
        orders += more
        orders.sort()
    else:
        for order in more:
            insort(orders, order)


def _discard(places: list[T], place: T) -> bool:
    """Delete from a sorted list, if it is there; return whether it was."""
    at = bisect_left(places, place)
    is_there = at < len(places) and places[at] == place
    if is_there:
        del places[at]
    return is_there
