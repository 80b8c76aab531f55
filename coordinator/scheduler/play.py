"""The rest of the plan played through: a discrete-event simulation, at one quantile of durations.

Whenever a slot comes free, the next job in claim order that may run there is placed by
`rules.choose`, as the coordinator would.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from coordinator.jobs.plan_entries import JobSpec
from coordinator.jobs.reasons import Wait
from coordinator.scheduler.durations import Expected, History
from coordinator.scheduler.estimates import Estimate
from coordinator.scheduler.feasibility import Conditions, Fate, Waiting
from coordinator.scheduler.lead_times import NO_LEAD, Lead
from coordinator.scheduler.precedence import Gate
from coordinator.scheduler.rules import HostView, choose

EPSILON_S: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Held:
    """A job that a host is at. `uses_slot`: false once only its result is on the way.

    `begun` is the share at which its attempt began. `is_stuck`: its result waits for somebody, or
    its host could not use what it needs before. `is_claimed`: its trainer has not begun.
    """

    spec: JobSpec
    host: str
    elapsed_s: float = 0.0
    share: float | None = None
    eta_s: float | None = None
    uses_slot: bool = True
    begun: float = 0.0
    is_stuck: bool = False
    is_claimed: bool = False

    def left(self, history: History) -> Estimate:
        """Return for how much longer its trainer runs."""
        spec = self.spec
        return history.left(
            spec.model, spec.mode, self.host, self.elapsed_s, share=self.share, eta_s=self.eta_s,
            epochs=spec.hyper.get("epochs"), begun=self.begun,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Placed:
    """Where and when a job was placed, as `Outlook` says; times from now, in seconds."""

    host: str
    start_s: float
    end_s: float
    estimate: Estimate
    vague: bool
    after: str | None
    ahead: int
    lead: Lead


@dataclass(frozen=True, slots=True, order=True)
class _Room:
    """A free slot, and who has left it."""

    vague: bool = False
    after: str = ""


@dataclass(slots=True)
class _Group:
    """Jobs that may go to the same hosts, as a heap in claim order."""

    conditions: Conditions
    grace_until_s: float
    refused: Mapping[str, float]
    jobs: list[tuple[tuple[int, str, str], int, Waiting]] = field(default_factory=list)


class Play:
    """One simulation. `index` is which of the `QUANTILES` all durations are at."""

    def __init__(
        self, index: int, hosts: Mapping[str, HostView], history: History, expected: Expected,
        grace_s: float, gate: Gate[tuple[Waiting, Fate, int]],
    ) -> None:  # fmt: skip
        """Take the hosts as they are, how long jobs take, and what holds jobs back."""
        self._index = index
        self._history, self._expected = history, expected
        self._grace_s = grace_s
        self._gate = gate
        self._views = dict(hosts)
        self._used: Counter[str] = Counter()
        self._rooms: dict[str, list[_Room]] = {}
        self._released: dict[str, _Room] = {}  # by the first job of ours that ended there
        self._groups: dict[tuple[Any, ...], _Group] = {}
        self._groups_at: dict[str, list[_Group]] = {}
        self._due: list[tuple[float, int, Any]] = []
        self._ticks = 0
        self._started: Counter[str] = Counter()
        self._placed: dict[str, Placed] = {}

    def play(self, jobs: Sequence[tuple[Waiting, Fate]], held: Sequence[Held]) -> dict[str, Placed]:
        """Return where each job was placed; one that never found room is not in it."""
        for one in held:
            self._take_held(one)
        for view in self._views.values():
            free = max(0, view.slots() - self._used[view.host])
            self._rooms[view.host] = [_Room()] * free
        for number, (job, fate) in enumerate(jobs):
            if not self._gate.holds(job.spec.job_id, (job, fate, number)):
                self._enter(job, fate, number)
        self._settle(0.0)
        while self._due:
            now_s = self._due[0][0]
            while self._due and self._due[0][0] <= now_s:
                self._happen(heapq.heappop(self._due)[2], now_s)
            self._settle(now_s)
        return self._placed

    def _at(self, at_s: float, what: Any) -> None:
        self._ticks += 1
        heapq.heappush(self._due, (at_s, self._ticks, what))

    def _take_held(self, one: Held) -> None:
        if not one.uses_slot:
            self._at(0.0, (None, _Room(one.is_stuck, one.spec.job_id)))
            return
        left = one.left(self._history)
        self._used[one.host] += 1
        room = _Room(not left.is_known, one.spec.job_id)
        lead = self._lead(one.spec, one.host, 0.0) if one.is_claimed else NO_LEAD
        self._at(lead.then(left.span)[self._index], (one.host, room))

    def _lead(self, spec: JobSpec, host: str, now_s: float) -> Lead:
        """Return what a host does before it starts a job; then it holds what that needs."""
        view = self._views.get(host)
        lead = NO_LEAD if view is None else self._history.leads.of(spec, view)
        if lead.lacks_bytes:
            self._at(now_s + lead.then()[self._index], (host, spec))
        return lead

    def _enter(self, job: Waiting, fate: Fate, number: int) -> None:
        waits_s = 0.0
        if Wait.GRACE in fate.conditions.values():
            waits_s = max(0.0, self._grace_s - job.waited_s)
        key = (tuple(fate.conditions.items()), waits_s, job.refused)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(fate.conditions, waits_s, dict(job.refused))
            for _, asked_again_s in job.refused:
                self._at(asked_again_s, None)
            for host in fate.conditions:
                self._groups_at.setdefault(host, []).append(group)
            if waits_s:
                self._at(waits_s, None)
        entry = (claim_order(job), number, job)
        if job.ready_in_s > 0:
            self._at(job.ready_in_s, (group, entry))
        else:
            heapq.heappush(group.jobs, entry)

    def _happen(self, what: Any, now_s: float) -> None:
        if what is None:
            return  # a grace is over, or a refusal: there is something to settle
        where, thing = what
        if isinstance(where, _Group):
            heapq.heappush(where.jobs, thing)
            return
        if isinstance(thing, JobSpec):
            self._views[where] = self._views[where].with_parts(thing)
            return
        for job, fate, number in self._gate.ended(thing.after, now_s, vague=thing.vague):
            self._enter(replace(job, waited_s=-now_s), fate, number)  # its grace begins now
        if where is None:
            return
        self._used[where] -= 1
        view = self._views.get(where)
        if view is None:
            return
        if where not in self._released:
            self._released[where] = thing
            view = _with_memory(view)
        self._views[where] = replace(view, used_slots=self._used[where])
        if self._used[where] < view.slots():
            self._rooms[where].append(thing)

    def _settle(self, now_s: float) -> None:
        passed: set[int] = set()
        while (best := self._next(now_s, passed)) is not None:
            group, free = best
            job = group.jobs[0][2]
            left_s = self._grace_s - job.waited_s - now_s
            views = [self._views[host] for host in free]
            chosen = choose(job.spec, views, left_s, job.last_host)
            if chosen is None:
                passed.add(id(group))
                continue
            heapq.heappop(group.jobs)
            awaited = group.conditions[chosen.host] is Wait.RELEASE
            self._place(job, chosen.host, now_s, self._released[chosen.host] if awaited else None)

    def _next(self, now_s: float, passed: set[int]) -> tuple[_Group, list[str]] | None:
        """Return the group whose first job is next in claim order, and the hosts that are free."""
        usable: dict[int, tuple[_Group, list[str]]] = {}
        for host, rooms in self._rooms.items():
            if not rooms:
                continue
            for group in self._groups_at.get(host, ()):
                if not group.jobs or id(group) in passed:
                    continue
                when = group.conditions[host]
                if (
                    (when is Wait.RELEASE and host not in self._released)
                    or (when is Wait.GRACE and now_s < group.grace_until_s)
                    or now_s < group.refused.get(host, 0.0)
                ):
                    continue
                usable.setdefault(id(group), (group, []))[1].append(host)
        return min(usable.values(), key=lambda one: one[0].jobs[0][:2], default=None)

    def _place(self, job: Waiting, host: str, now_s: float, memory: _Room | None) -> None:
        """Give a job the room of which most is known; `memory`: who had to leave that to it."""
        rooms = self._rooms[host]
        room = min(rooms)
        rooms.remove(room)
        if memory is not None:
            room = _Room(room.vague or memory.vague, room.after or memory.after)
        if (let_in := self._gate.let_in(job.spec.job_id)) is not None:
            after = room.after if room.after and now_s > let_in.at_s else let_in.after
            room = _Room(room.vague or let_in.vague, after)
        estimate = self._expected.estimate(job.spec, host)
        lead = self._lead(job.spec, host, now_s)
        end_s = now_s + max(EPSILON_S, lead.then(estimate.span)[self._index])
        self._placed[job.spec.job_id] = Placed(
            host, now_s, end_s, estimate, room.vague, room.after or None, self._started[host], lead
        )
        self._started[host] += 1
        self._used[host] += 1
        self._views[host] = replace(self._views[host], used_slots=self._used[host])
        left = _Room(room.vague or not estimate.is_known, job.spec.job_id)
        self._at(end_s, (host, left))


def _with_memory(view: HostView) -> HostView:
    """A host as it is once a job of ours has ended: all of its memory is there again."""
    capability = view.capability
    gpus = tuple(
        gpu.model_copy(update={"vram_free_bytes": gpu.vram_total_bytes or gpu.vram_free_bytes})
        for gpu in capability.gpus
    )
    whole = {"ram_available_bytes": capability.ram_total_bytes, "gpus": gpus}
    return replace(view, heartbeat=None, capability=capability.model_copy(update=whole))


def claim_order(job: Waiting) -> tuple[int, str, str]:
    """Return a job's place among those that wait."""
    return (-job.spec.priority, job.created_at, job.spec.name)
