"""When each job will run, and where: the rest of the plan, played through by the very same rules.

A discrete-event simulation. Whenever a slot comes free, the next job in claim order that may run
there is placed by `rules.choose`, as the coordinator would; how long it takes is what history
says (`durations`). The plan is played three times: all jobs quick, all at their median, all slow.

Only what can be known is played. A host that is away, in quiet hours, drained or without its data
may be open at any time: it is given nothing, and a job that only such hosts could take is `absent`.
So is a job before which another one does not end; others begin when those before them have ended.
A job that no host could ever take as things are is `stuck`. A job whose like was never completed,
or that has run for longer than any of its like, has an end that nobody knows; so has what comes
after it in its slot, or has to wait for its memory.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from broker.protocol.reasons import reason
from coordinator.jobs.plan_entries import JobSpec
from coordinator.jobs.reasons import Wait
from coordinator.scheduler.durations import Expected, History
from coordinator.scheduler.estimates import QUANTILES, Earlier, Estimate, Span
from coordinator.scheduler.feasibility import (
    Against,
    Conditions,
    Fate,
    Sorter,
    Waiting,
    after_links,
    links_of,
)
from coordinator.scheduler.precedence import Gate
from coordinator.scheduler.rules import HostView, choose

MEDIAN: Final = 1  # in QUANTILES
EPSILON_S: Final = 1e-6

Verdict = Literal["running", "starts", "absent", "stuck"]


@dataclass(frozen=True, slots=True)
class Held:
    """A job that a host is at. `uses_slot`: false once only its result is on the way.

    `earlier` is what an attempt before had left of it. `is_stuck`: its result waits for somebody.
    """

    spec: JobSpec
    host: str
    elapsed_s: float = 0.0
    share: float | None = None
    eta_s: float | None = None
    uses_slot: bool = True
    earlier: Earlier | None = None
    is_stuck: bool = False

    def left(self, history: History) -> Estimate:
        """Return for how much longer it runs."""
        spec = self.spec
        return history.left(
            spec.model, spec.mode, self.host, self.elapsed_s, share=self.share, eta_s=self.eta_s,
            epochs=spec.hyper.get("epochs"), earlier=self.earlier,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is to be expected of one job. Spans are from now, in seconds.

    `vague`: when it starts rests on a job of which nobody knows when it ends. `after` is the id of
    the job that it comes after, or that makes room for it, or none; `ahead` how many pending jobs
    start before it on the same host. `against` are the reasons of a job that is `absent` or
    `stuck`, each with the number of hosts that it is the case for; `awaits` is what an `absent` one
    waits for, on the hosts that are `awaited`.
    """

    spec: JobSpec
    verdict: Verdict
    host: str | None = None
    start: Span | None = None
    end: Span | None = None
    estimate: Estimate | None = None
    vague: bool = False
    after: str | None = None
    ahead: int = 0
    against: tuple[Against, ...] = ()
    awaits: Wait | None = None
    awaited: tuple[str, ...] = ()

    @property
    def ends_known(self) -> bool:
        """Whether its end rests on history alone."""
        return self.estimate is not None and self.estimate.is_known and not self.vague


@dataclass(frozen=True, slots=True)
class Forecast:
    """The outlook of every job, by id, and the end of the last one whose end is known.

    `unknown` is how many of the jobs that run, or will, have an end that nobody knows. `paused`:
    what starts does so only when the fleet goes on, and as if it did so now.
    """

    outlooks: Mapping[str, Outlook]
    end: Span | None
    unknown: int
    paused: bool = False

    def waits_for_fleet(self) -> bool:
        """Whether anything here comes true only when the fleet is not paused any more."""
        return self.paused and any(one.verdict == "starts" for one in self.outlooks.values())

    def of(self, verdict: Verdict) -> list[Outlook]:
        """Return the outlooks of that kind: what starts first, what ends first, what is vague."""
        found = [one for one in self.outlooks.values() if one.verdict == verdict]
        return sorted(found, key=_by_time)


def _by_time(one: Outlook) -> tuple[bool, float, float]:
    return (
        one.vague,
        one.start.median_s if one.start else 0.0,
        one.end.median_s if one.end else 0.0,
    )


def forecast(
    waiting: Sequence[Waiting],
    held: Sequence[Held],
    views: Iterable[HostView],
    history: History,
    grace_s: float,
) -> Forecast:
    """Return what is to be expected of all jobs; slots are counted by `held`."""
    hosts = {view.host: _with_room(view) for view in views}
    at_work = Counter(job.host for job in held if job.uses_slot)
    sorter = Sorter(hosts, at_work, grace_s)
    live = {job.spec.job_id for job in waiting} | {one.spec.job_id for one in held}
    links = links_of(waiting, live)
    alone = [(job, sorter.fate(job)) for job in sorted(waiting, key=_claim_order)]
    fates = after_links(alone, links)
    placeable = [(job, fate) for job, fate in fates if fate.conditions]
    expected = Expected(history, ((one.spec, one.host, one.elapsed_s) for one in held))
    runs = [
        _Play(index, hosts, history, expected, grace_s, Gate(links)).play(placeable, held)
        for index in range(len(QUANTILES))
    ]
    outlooks: dict[str, Outlook] = {}
    for one in held:
        left = one.left(history)
        now = Span(0.0, 0.0, 0.0)
        away = one.host in hosts and not hosts[one.host].online  # nobody may be at work on it
        outlooks[one.spec.job_id] = Outlook(
            one.spec, "running", one.host, now, left.span, left, vague=away or one.is_stuck
        )
    for job, fate in fates:
        outlooks[job.spec.job_id] = (
            _outlook(job, [run.get(job.spec.job_id) for run in runs], expected)
            if fate.conditions
            else Outlook(
                job.spec, "stuck" if fate.awaits is Wait.EVER else "absent", against=fate.against,
                awaits=fate.awaits, awaited=fate.awaited,
            )
        )  # fmt: skip
    ends = [one.end for one in outlooks.values() if one.end is not None and one.ends_known]
    end = Span(*(max(column) for column in zip(*ends))) if ends else None
    unknown = sum(one.end is not None and not one.ends_known for one in outlooks.values())
    return Forecast(outlooks, end, unknown)


def _with_room(view: HostView) -> HostView:
    """A host as it is, but for what passes by itself: busy slots, refusals, its first heartbeat."""
    return replace(view, used_slots=0, joined=True)


def _with_memory(view: HostView) -> HostView:
    """A host as it is once a job of ours has ended: all of its memory is there again."""
    capability = view.capability
    gpus = tuple(
        gpu.model_copy(update={"vram_free_bytes": gpu.vram_total_bytes or gpu.vram_free_bytes})
        for gpu in capability.gpus
    )
    whole = {"ram_available_bytes": capability.ram_total_bytes, "gpus": gpus}
    return replace(view, heartbeat=None, capability=capability.model_copy(update=whole))


def _claim_order(job: Waiting) -> tuple[int, str, str]:
    return (-job.spec.priority, job.created_at, job.spec.name)


# The play


@dataclass(frozen=True, slots=True)
class _Placed:
    host: str
    start_s: float
    end_s: float
    estimate: Estimate
    vague: bool
    after: str | None
    ahead: int


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


class _Play:
    """One simulation, at one quantile of all durations."""

    def __init__(
        self, index: int, hosts: Mapping[str, HostView], history: History, expected: Expected,
        grace_s: float, gate: Gate[tuple[Waiting, Fate, int]],
    ) -> None:  # fmt: skip
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
        self._placed: dict[str, _Placed] = {}

    def play(
        self, jobs: Sequence[tuple[Waiting, Fate]], held: Sequence[Held]
    ) -> dict[str, _Placed]:
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
        self._at(left.span[self._index], (one.host, room))

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
        entry = (_claim_order(job), number, job)
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
        estimate = self._expected.estimate(job.spec, host, job.earlier)
        end_s = now_s + max(EPSILON_S, estimate.span[self._index])
        self._placed[job.spec.job_id] = _Placed(
            host, now_s, end_s, estimate, room.vague, room.after or None, self._started[host]
        )
        self._started[host] += 1
        self._used[host] += 1
        self._views[host] = replace(self._views[host], used_slots=self._used[host])
        left = _Room(room.vague or not estimate.is_known, job.spec.job_id)
        self._at(end_s, (host, left))


def _outlook(job: Waiting, played: Sequence[_Placed | None], expected: Expected) -> Outlook:
    middle = played[MEDIAN]
    if middle is None:
        # What room there is, is never free: more jobs are held there than it has slots.
        why = Against((reason("not-free"),))
        return Outlook(job.spec, "absent", against=(why,), awaits=Wait.QUIET)
    starts = [one.start_s for one in played if one is not None]
    ends = [one.end_s for one in played if one is not None]
    return Outlook(
        spec=job.spec,
        verdict="starts",
        host=middle.host,
        start=Span(min(starts), middle.start_s, max(starts)),
        end=Span(min(ends), middle.end_s, max(ends)),
        estimate=expected.estimate(job.spec, middle.host, job.earlier),
        vague=middle.vague,
        after=middle.after,
        ahead=middle.ahead,
    )
