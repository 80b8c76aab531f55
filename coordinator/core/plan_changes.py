"""A manifest becomes the plan: new jobs are added, others changed in place, removed ones stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from pydantic import JsonValue
from pydantic_core import to_json

from broker.clock import Now
from broker.protocol.messages import MAX_INPUTS, AskRun, TrainerInfo
from broker.protocol.topics import user_of
from coordinator.core import catalogue, host_rules
from coordinator.core.authorization import Data, RequestRefused
from coordinator.core.effects import Warn
from coordinator.core.finding import find
from coordinator.core.state import World
from coordinator.jobs.causes import NONE, Cause, cause, in_words
from coordinator.jobs.jobs import Job
from coordinator.jobs.plan_entries import JobSpec, Plan
from coordinator.jobs.states import Event
from coordinator.manifest.data_keys import Catalogue
from coordinator.manifest.diff import Difference, Known, Step, difference, spec_changes
from coordinator.manifest.manifest_keys import MAX_AFTER
from coordinator.manifest.problems import ManifestError
from coordinator.manifest.reader import read_job
from coordinator.scheduler import unknown_hosts

MOST_NAMED: Final = 100  # jobs, and hosts, in the answer to a reload
NAMED_CHARS: Final = 30_000  # of its text for jobs, and for hosts
_UNKNOWN: Final = TrainerInfo(hyper_schema={})
TRAINERS_BYTES: Final = 200_000  # of their schemas, in the answer to whoever asks for them


def take_plan(world: World, plan: Plan, now: Now, who: str) -> Difference:
    """Make `plan` the running one, and return what that has changed; no job changes its state."""
    known = [
        Known(job.spec, job.state.value, job.in_plan, job.host, submitted=bool(job.submitted_by))
        for job in world.book.all()
    ]
    before = world.plan
    found = difference(known, plan, before.hosts, world.plans_grace_s(), before.name)
    for step in found.steps:
        _take(world, step, now, who)
    for step in found.steps:
        if step.action in {"orphaned", "replaced"}:
            _leave(world, step, now, who)
    in_force = replace(plan, jobs=())
    if in_force != world.fleet.plan:
        world.remember(replace(world.fleet, plan=in_force))
    world.timers.set(("summary",), now.mono_s + 0.2)
    host_rules.on_plan(world, now)
    world.unsettled = True
    return found


def told(found: Difference) -> dict[str, JsonValue]:
    """Return what a reload has done as JSON: all counts, and as many names as an answer holds."""
    return {
        "changes": {**found.counts()},
        "steps": [*_some(step.to_dict() for step in found.told())],
        "hosts": {
            str(row["host"]): row["changes"]
            for row in _some(
                {"host": name, "changes": [*changes]} for name, changes in found.hosts.items()
            )
        },
        "settings": [*found.settings],
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
    """Return and log the `warnings` about a sound manifest: hosts that nobody knows."""
    warnings = unknown_hosts.of_plan(plan, world.known_hosts())
    for why in warnings:
        world.do(Warn(f"the manifest: {in_words(why)}"))
    return {"warnings": [{**why} for why in warnings]} if warnings else {}


def known_trainers(world: World) -> dict[str, TrainerInfo]:
    """Return each model's trainer: as hosts announce it, else as configured, else as a job has it.

    Where hosts differ, a job may have the hyperparameters that any of them takes. Of the versions
    that hosts have it is the one that a host was last seen to change to, else that of our own
    files, else the plan's, so that a restart changes nothing. Programs stand as `NAME@DIGEST`.
    """
    announced: dict[str, list[TrainerInfo]] = {}
    for host in sorted(world.hosts.values(), key=lambda host: host.name):
        for model, trainer in (host.capability.trainers if host.capability else {}).items():
            announced.setdefault(model, []).append(trainer)
    found = world.book.trainers()
    for model, trainer in world.settings.trainers.items():
        planned = found[model].version if model in found else None
        version = planned if trainer.version is None else trainer.version
        found[model] = trainer.model_copy(update={"version": version})
    for model, trainers in announced.items():
        schemas: list[JsonValue] = []
        for one in trainers:
            if one.hyper_schema not in schemas:
                schemas.append(one.hyper_schema)
        any_of = trainers[0].hyper_schema if len(schemas) == 1 else {"anyOf": schemas}
        versions = [one.version for one in trainers if one.version]
        ours = found.get(model, _UNKNOWN)
        wanted = [one for one in (world.edited.get(model), ours.version) if one in versions]
        version = next(iter([*wanted, *versions]), ours.version)
        newest = next((one for one in trainers if one.version == version), trainers[0])
        said = {"hyper_schema": any_of, "version": version, "data": ours.data}
        found[model] = newest.model_copy(update=said)
    return found | catalogue.known_programs(world)


def known(world: World) -> Catalogue:
    """Return what a job may name."""
    return Catalogue(known_trainers(world), catalogue.known_datasets(world))


def told_trainers(world: World) -> dict[str, JsonValue]:
    """Return the known trainers as an answer bears them: of what is too large, anything goes."""
    known = known_trainers(world)
    sizes = {model: len(to_json(one.hyper_schema)) for model, one in known.items()}
    room_bytes = TRAINERS_BYTES
    for model in sorted(known, key=sizes.__getitem__):
        room_bytes -= sizes[model]
        if room_bytes < 0:
            known[model] = known[model].model_copy(update={"hyper_schema": {}})
    return {model: one.model_dump(mode="json") for model, one in known.items()}


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
        job = world.move(
            job, Event.ADOPTED, now, who, cause("in_manifest"), in_plan=True, submitted_by=None
        )
    if step.changes:
        why = cause("keys", names=[one["what"] for one in step.changes])
        world.move(job, Event.CHANGED, now, who, why, spec=spec)


def _leave(world: World, step: Step, now: Now, who: str) -> None:
    """Take the job out of the plan that a step leaves orphaned, or puts another in the place of."""
    job = None if step.known is None else world.book.get(step.known.spec.job_id)
    assert job is not None  # noqa: S101 - the step was made of it
    world.move(job, Event.ORPHANED, now, who, cause("not_in_manifest"), in_plan=False)


# Jobs that operators ask for beside the manifest.
#
# Such a job is like any other, but that no reload takes it out of the plan, unless a manifest has
# named it meanwhile: whoever has asked for it cancels it. Asked for again, it is there already.

MOST_ERRORS: Final = 100  # in the answer, which a packet has to hold


def on_run(world: World, client: str, ask: AskRun, now: Now) -> Data:
    """Add a job, unless it is there already."""
    table, errors = _with_ids(world, ask.job)
    try:
        spec = read_job(table, *known(world))
    except ManifestError as error:
        errors += [
            {"key": one.key, "why": {"code": "text", "text": one.message}} for one in error.problems
        ]
        raise _errors(*errors[:MOST_ERRORS]) from None
    errors += _unknown_hosts(world, spec)
    if _leads_to(world, spec):
        errors.append({"key": "after", "why": {**cause("circle", name=spec.name)}})
    if errors:
        raise _errors(*errors[:MOST_ERRORS])
    job, who = world.book.get(spec.job_id), user_of(client)
    if job is None or not job.in_plan:
        if job is not None and "name" not in ask.job:
            spec = replace(spec, name=job.spec.name)
        named = world.book.named(spec.name)
        namesake = next((one for one in named if one.in_plan and one.job_id != spec.job_id), None)
        if namesake is not None:
            why = cause("name_taken", name=spec.name, job_id=namesake.job_id)
            raise _errors({"key": "name", "why": {**why}})
    if job is None:
        job = world.book.add(spec, now, who, submitted_by=who)
        world.pending_since_s[job.job_id] = now.mono_s
        world.unsettled = True
        world.announce(job, now)
        return _said(job, added=True)
    if job.in_plan:
        # The job stays as it is, whatever was asked for and is not so.
        differs = [one["what"] for one in spec_changes(job.spec, spec) if one["what"] in ask.job]
        return _said(job, differs=differs)
    job = world.move(
        job, Event.ADOPTED, now, who, cause("submitted"), in_plan=True,
        submitted_by=who, spec=spec,
    )  # fmt: skip
    return _said(job, added=True)


def _with_ids(
    world: World, table: Mapping[str, JsonValue]
) -> tuple[dict[str, JsonValue], list[JsonValue]]:
    """Return a job's table with ids in place of other jobs' names, and what is wrong with these."""
    errors: list[JsonValue] = []

    def found(key: str, name: JsonValue) -> JsonValue:
        try:
            return find(world, name).job_id if isinstance(name, str) else name
        except RequestRefused as refusal:
            errors.append({"key": key, "why": refusal.why})
            return name

    linked = {**table}
    after, inputs = table.get("after"), table.get("inputs")
    if isinstance(after, list):
        linked["after"] = [found("after", name) for name in after[: MAX_AFTER + 1]]
    if isinstance(inputs, dict):
        some = islice(inputs.items(), MAX_INPUTS + 1)
        linked["inputs"] = {key: found(f"inputs.{key}", name) for key, name in some}
    return linked, errors


def _leads_to(world: World, spec: JobSpec) -> bool:
    """Whether a job would come after itself: one that is there already may be before others."""
    if not world.book.followers(spec.job_id):
        return spec.job_id in spec.after
    left, seen = [*spec.predecessors()], set[str]()
    while left:
        job = world.book.get(left.pop())
        if job is not None and job.job_id not in seen:
            seen.add(job.job_id)
            left += job.spec.predecessors()
    return spec.job_id in seen


def _errors(*errors: JsonValue) -> RequestRefused:
    return RequestRefused(cause("job_errors"), "bad_request", {"errors": [*errors]})


def outcome(data: Data) -> Cause:
    """Return for the record what came of such a command; nothing where the job tells."""
    if data["added"] is False:
        return cause("there_already", name=data["name"], state=data["state"])
    return NONE


def _unknown_hosts(world: World, spec: JobSpec) -> list[JsonValue]:
    """Return an error for each host in `allowed_hosts` that neither fleet nor manifest knows."""
    if not spec.allowed_hosts:
        return []  # to know every host takes a look at every job
    known = world.known_hosts()
    found = unknown_hosts.allowed(spec, {*known, *world.plan.hosts}) if known else ()
    return [
        {"key": "allowed_hosts", "why": {**cause("unknown_host", name=name, meant=close)}}
        for name, close in found
    ]


def _said(job: Job, *, added: bool = False, differs: Sequence[JsonValue] = ()) -> Data:
    host = job.host if job.is_held else None
    return {
        "job_id": job.job_id,
        "name": job.spec.name,
        "state": job.state.value,
        "host": host,
        "added": added,
        "differs": [*differs],
    }
