"""When each job will run, and where: the rest of the plan, played through by the very same rules.

How long a job takes is what history says (`durations`). The plan is played three times (`Play`):
all jobs quick, all at their median, all slow.

Only what can be known is played. A host that is away, in quiet hours, drained or without its data
may be open at any time: it is given nothing, and a job that only such hosts could take is `absent`.
So is a job before which another one does not end; others begin when those before them have ended.
A job that no host could ever take as things are is `stuck`. A job whose like was never completed,
or that has run for longer than any of its like, has an end that nobody knows; so has what comes
after it in its slot, or has to wait for its memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from broker.protocol.reasons import reason
from coordinator.jobs.plan_entries import JobSpec
from coordinator.jobs.reasons import Wait
from coordinator.scheduler.durations import Expected, History
from coordinator.scheduler.estimates import NO_TIME, QUANTILES, Estimate, Span
from coordinator.scheduler.feasibility import (
    Against,
    Sorter,
    Waiting,
    after_links,
    links_of,
)
from coordinator.scheduler.lead_times import NO_LEAD, Lead
from coordinator.scheduler.play import Held, Placed, Play, claim_order
from coordinator.scheduler.precedence import Gate
from coordinator.scheduler.rules import HostView

MEDIAN: Final = 1  # in QUANTILES

Verdict = Literal["running", "starts", "absent", "stuck"]


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is to be expected of one job. Spans are from now, in seconds.

    `vague`: when it starts rests on a job of which nobody knows when it ends. `after` is the id of
    the job that it comes after, or that makes room for it, or none; `ahead` how many pending jobs
    start before it on the same host. `lead` is what its host does between its start and that of its
    trainer. `against` are the reasons of a job that is `absent` or `stuck`, each with the number of
    hosts that it is the case for; `awaits` is what an `absent` one waits for, on the hosts that are
    `awaited`.
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
    lead: Lead = NO_LEAD
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
    alone = [(job, sorter.fate(job)) for job in sorted(waiting, key=claim_order)]
    fates = after_links(alone, links)
    placeable = [(job, fate) for job, fate in fates if fate.conditions]
    expected = Expected(history, ((one.spec, one.host, one.elapsed_s) for one in held))
    runs = [
        Play(index, hosts, history, expected, grace_s, Gate(links)).play(placeable, held)
        for index in range(len(QUANTILES))
    ]
    outlooks: dict[str, Outlook] = {}
    for one in held:
        left, view = one.left(history), hosts.get(one.host)
        lead = history.leads.of(one.spec, view) if one.is_claimed and view else NO_LEAD
        away = view is not None and not view.online  # nobody may be at work on it
        outlooks[one.spec.job_id] = Outlook(
            one.spec, "running", one.host, NO_TIME, lead.then(left.span), left,
            vague=away or one.is_stuck, lead=lead,
        )  # fmt: skip
    for job, fate in fates:
        outlooks[job.spec.job_id] = (
            _outlook(job, [run.get(job.spec.job_id) for run in runs])
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


def _outlook(job: Waiting, played: Sequence[Placed | None]) -> Outlook:
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
        estimate=middle.estimate,
        vague=middle.vague,
        after=middle.after,
        ahead=middle.ahead,
        lead=middle.lead,
    )
