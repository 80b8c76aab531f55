"""A manifest becomes the plan: new jobs are added, others changed in place, removed ones stay."""

from __future__ import annotations

from pydantic import JsonValue

from broker.clock import Now
from coordinator import hostnames, house
from coordinator.diff import spec_changes
from coordinator.effects import Warn
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
        if job.in_plan and not job.submitted_by and job.job_id not in planned:
            world.move(job, Event.ORPHANED, now, who, "not in the manifest", in_plan=False)
            counts["removed"] += 1
    world.plan = plan
    house.on_plan(world, now)
    world.unsettled = True
    return counts


def doubts(world: World, plan: Plan) -> dict[str, JsonValue]:
    """Return and log the `warnings` about a manifest that is sound; nothing where there are none.

    Hosts that it names and that nobody knows.
    """
    warnings = hostnames.of_plan(plan, world.known_hosts())
    for text in warnings:
        world.do(Warn(f"the manifest: {text}"))
    return {"warnings": [*warnings]} if warnings else {}


def known_trainers(world: World) -> dict[str, dict[str, JsonValue]]:
    """Return the schema of each model's hyperparameters.

    Those that the hosts announce; where hosts differ, any of theirs will do, and matchmaking finds
    out whose. Then what is known without any host. A model that only the ledger knows may have
    any: its hosts have yet to come.
    """
    announced: dict[str, list[dict[str, JsonValue]]] = {}
    for host in sorted(world.hosts.values(), key=lambda host: host.name):
        for model, trainer in (host.capability.trainers if host.capability else {}).items():
            schemas = announced.setdefault(model, [])
            if trainer.hyper_schema not in schemas:
                schemas.append(dict(trainer.hyper_schema))
    known: dict[str, dict[str, JsonValue]] = {model: {} for model in world.book.models()}
    known |= {model: dict(schema) for model, schema in world.settings.trainers.items()}
    return known | {
        model: schemas[0] if len(schemas) == 1 else {"anyOf": [*schemas]}
        for model, schemas in announced.items()
    }


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
        names = ", ".join(name for name, *_ in spec_changes(job.spec, spec))
        world.move(job, Event.CHANGED, now, who, names, spec=spec)
        changed = True
    world.book.share(spec)
    return "changed" if changed else "unchanged"
