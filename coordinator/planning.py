"""A manifest becomes the plan: new jobs are added, others changed in place, removed ones stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from pydantic import JsonValue
from pydantic_core import to_json

from broker.clock import Now
from coordinator import hostnames, house
from coordinator.diff import Difference, Known, Step, difference, to_list
from coordinator.effects import Warn
from coordinator.plan import Plan
from coordinator.states import Event
from coordinator.world import World

MOST_NAMED: Final = 100  # jobs, and hosts, in the answer to a reload
NAMED_CHARS: Final = 30_000  # of its text for jobs, and for hosts
TRAINERS_BYTES: Final = 200_000  # of their schemas, in the answer to whoever asks for them


def take_plan(world: World, plan: Plan, now: Now, who: str) -> Difference:
    """Make `plan` the running one, and return what that has changed.

    A job's state is never touched. What its id is made of cannot have changed; the rest (name,
    priority, constraints) is updated in place.
    """
    found = _difference(world, plan)
    for step in found.steps:
        _take(world, step, now, who)
    for step in found.steps:
        if step.action in {"orphaned", "replaced"}:
            _leave(world, step, now, who)
    world.plan = plan
    world.timers.set(("summary",), now.mono_s + 0.2)
    house.on_plan(world, now)
    world.unsettled = True
    return found


def _difference(world: World, plan: Plan) -> Difference:
    known = [
        Known(job.spec, job.state.value, job.in_plan, job.host, submitted=bool(job.submitted_by))
        for job in world.book.all()
    ]
    if world.plan is None:  # the coordinator has just started: nothing else was in force
        return difference(known, plan, plan.hosts)
    return difference(known, plan, world.plan.hosts, world.plans_grace_s(), world.plan.name)


def told(found: Difference) -> dict[str, JsonValue]:
    """Return as JSON values what a reload has done: all counts, and as many names as an answer has.

    Answers are kept, and a packet holds only so much; whatever is not named is counted.
    """
    return {
        "changes": {**found.counts()},
        "steps": [*_some(step.to_dict() for step in found.told())],
        "hosts": {
            str(row["host"]): row["changes"]
            for row in _some(
                {"host": name, "changes": to_list(changes)} for name, changes in found.hosts.items()
            )
        },
        "settings": to_list(found.settings),
    }


def _some(rows: Iterable[dict[str, JsonValue]]) -> Iterator[dict[str, JsonValue]]:
    """Yield the first of the rows, without those for which there is no room."""
    room_chars = NAMED_CHARS
    for row in islice(rows, MOST_NAMED):
        size_chars = len(str(row))
        if size_chars <= room_chars:
            room_chars -= size_chars
            yield row


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


def told_trainers(world: World) -> dict[str, dict[str, JsonValue]]:
    """Return the known trainers as an answer bears them: of what is too large, anything goes."""
    known = known_trainers(world)
    sizes = {model: len(to_json(schema)) for model, schema in known.items()}
    room_bytes = TRAINERS_BYTES
    for model in sorted(known, key=sizes.__getitem__):
        room_bytes -= sizes[model]
        if room_bytes < 0:
            known[model] = {}
    return known


def _take(world: World, step: Step, now: Now, who: str) -> None:
    """Do what a step says of a job of the new plan."""
    if step.action == "orphaned":
        return
    spec = step.spec
    job = world.book.get(spec.job_id)
    if job is None:
        job = world.book.add(spec, now, who)
        world.pending_since_s[job.job_id] = now.mono_s
        world.announce(job, now)
        return
    if step.action == "adopted":
        job = world.move(job, Event.ADOPTED, now, who, "in the manifest again", in_plan=True)
    if step.changes:
        names = ", ".join(name for name, *_ in step.changes)
        world.move(job, Event.CHANGED, now, who, names, spec=spec)
    world.book.share(spec)


def _leave(world: World, step: Step, now: Now, who: str) -> None:
    """Take the job out of the plan that a step leaves orphaned, or puts another in the place of."""
    job = None if step.known is None else world.book.get(step.known.spec.job_id)
    assert job is not None  # noqa: S101 - the step was made of it
    world.move(job, Event.ORPHANED, now, who, "not in the manifest", in_plan=False)
