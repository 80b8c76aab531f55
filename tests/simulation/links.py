"""Jobs that come after others in a simulation: which do, and what must hold of them."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from typing import TYPE_CHECKING

from broker.protocol.messages import Assign
from coordinator.jobs.jobs import Change
from coordinator.jobs.states import Event, JobState

from .nodes import ROOT
from .trainer_checks import Violation

if TYPE_CHECKING:
    from .checks import Checker
    from .nodes import Machine
    from .scenario import JobPlan

RULE = "what comes before is stored before"


def draw(seed: int, jobs: tuple[JobPlan, ...]) -> tuple[JobPlan, ...]:
    """Some fleets have jobs that come after others; some of these read what those have made.

    That only programs do so is for the manifest's reader.
    """
    rng = random.Random(f"links {seed}")
    if rng.random() < 0.75:
        return jobs
    drawn: list[JobPlan] = []
    for job in jobs:
        spec = job.spec
        if drawn and rng.random() < 0.5:
            some = rng.sample(drawn, min(len(drawn), rng.choice((1, 1, 2))))
            ids = tuple(one.spec.job_id for one in some)
            reads = rng.random() < 0.4
            links = {"inputs": {"a": ids[0]}, "after": ids[1:]} if reads else {"after": ids}
            spec = replace(spec, **links)
        drawn.append(replace(job, spec=spec))
    return tuple(drawn)


def check_assigned(checker: Checker, change: Change) -> None:
    """A job is given out: each before it is completed, and what it reads is in the store."""
    spec = change.after.spec
    for job_id in spec.predecessors() if change.event is Event.ASSIGNED else ():
        before = checker.rows.get(job_id)
        if before is None or before.state is not JobState.COMPLETED:
            state = before.state if before else "unknown"
            raise Violation(
                RULE, f"{spec.name} is given out, and {job_id[:8]} is {state}", spec.job_id
            )
        if job_id in spec.inputs.values() and not checker.is_stored(before.artifact_id or ""):
            raise Violation(RULE, f"{spec.name} reads what is not stored", spec.job_id)


def check_started(checker: Checker, machine: Machine, assign: Assign) -> None:
    """A trainer starts: all that its job reads is whole here, and made by the jobs before it."""
    job = checker.rows[assign.job_id]
    if {one.name for one in assign.inputs} != job.spec.inputs.keys():
        raise Violation(RULE, f"{job.spec.name} starts without its inputs", job.job_id)
    for one in assign.inputs:
        data = machine.disk.bytes_of(ROOT / "inputs" / one.artifact_id)
        made = checker.completed.get(job.spec.inputs[one.name], ())
        is_whole = data is not None and hashlib.sha256(data).hexdigest() == one.artifact_id
        if not is_whole or one.artifact_id not in made:
            raise Violation(RULE, f"{job.spec.name} starts on {one.artifact_id[:8]}", job.job_id)
    if missing := {*job.spec.predecessors()} - checker.completed.keys():
        text = f"{job.spec.name} starts, and {min(missing)[:8]} was never completed"
        raise Violation(RULE, text, job.job_id)
