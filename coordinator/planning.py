"""A manifest becomes the plan: new jobs are added, others changed in place, removed ones stay."""

from __future__ import annotations

from broker.clock import Now
from coordinator.diff import spec_changes
from coordinator.plan import JobSpec, Plan
from coordinator.states import Event
from coordinator.world import World


def take_plan(world: World, plan: Plan, now: Now, who: str) -> dict[str, int]:
    """Make `plan` the running one and return how many jobs were added, changed, removed, left.

    A job's state is never touched. What its id is made of cannot have changed; the rest (name,
    priority, constraints) is updated in place.
    """
    counts = {"added": 0, "changed": 0, "removed": 0, "unchanged": 0}
    for spec in plan.jobs:
        counts[_take_spec(world, spec, now, who)] += 1
    planned = {spec.job_id for spec in plan.jobs}
    for job in list(world.book.all()):
        if job.in_plan and job.job_id not in planned:
            world.move(job, Event.ORPHANED, now, who, "not in the manifest", in_plan=False)
            counts["removed"] += 1
    world.plan = plan
    world.unsettled = True
    return counts


def _take_spec(world: World, spec: JobSpec, now: Now, who: str) -> str:
    job = world.book.get(spec.job_id)
    if job is None:
        job = world.book.add(spec, now, who)
        world.pending_since_s[job.job_id] = now.mono_s
        world.announce(job, now)
        return "added"
    changed = not job.in_plan
    if not job.in_plan:
        job = world.move(job, Event.ADOPTED, now, who, "in the manifest again", in_plan=True)
    if job.spec != spec:
        world.move(
            job,
            Event.CHANGED,
            now,
            who,
            ", ".join(name for name, *_ in spec_changes(job.spec, spec)),
            spec=spec,
        )
        changed = True
    return "changed" if changed else "unchanged"
