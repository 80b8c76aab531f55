"""What concerns several jobs of a manifest: `after` and `inputs`, which name others; no job twice.

A job's id depends on the ids of its inputs: names are resolved from the first jobs to the last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Final, NamedTuple

from broker.protocol.hyperschema import did_you_mean, meant
from broker.protocol.messages import TrainerInfo
from coordinator.jobs.plan_entries import JobSpec, id_of
from coordinator.manifest.manifest_keys import JobTable

_INPUT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_MOST_COMPARED: Final = 10_000  # names: with more of them it would take seconds
_MOST_HINTS: Final = 8
_MOST_NAMED: Final = 8  # jobs of a cycle
_MOST_CYCLES: Final = 8  # that are told at once

Links = dict[int, dict[int, str]]  # by job: those before it, each with the key that says so


class Fault(NamedTuple):
    """What is wrong with the key of a job, which is the `number`th, from 0."""

    number: int
    key: str
    message: str


def of_job(job: JobTable, trainer: TrainerInfo | None) -> Iterator[tuple[str, str]]:
    """Yield which inputs a job cannot have by its trainer, each with what is wrong.

    A trainer that declares no inputs takes any.
    """
    for name in job.inputs:
        if job.program is None:
            message = "only a program takes inputs; write program = ..., or after = [...]"
            yield f"inputs.{name}", message
        elif not _INPUT.fullmatch(name):
            rule = "up to 64 of a-z, A-Z, 0-9, '_', '-', a letter or digit first"
            yield f"inputs.{name}", f"cannot be the name of an input: it must be {rule}"
        elif trainer is not None and trainer.inputs and name not in trainer.inputs:
            hint = did_you_mean(name, trainer.inputs) or "; add it to [inputs] of its program.toml"
            program = job.program.partition("@")[0]
            yield f"inputs.{name}", f"{program} has no input of this name{hint}"


def with_ids(spec: JobSpec, inputs: Mapping[str, str], after: Sequence[str]) -> JobSpec:
    """Return a job with the ids of the jobs before it, and with its own id by these."""
    linked = replace(spec, inputs={**inputs}, after=tuple(dict.fromkeys(after)))
    return replace(linked, job_id=id_of(linked)) if inputs else linked


def linked(
    specs: list[JobSpec], names: Mapping[str, int], place: Callable[[int], str]
) -> tuple[list[JobSpec], list[Fault]]:
    """Return the jobs with ids in place of names, and what is wrong with them all.

    `names` has the job of each name by its index, `place` says where that is. A job that cannot be
    linked has no id.
    """
    links, faults = _resolved(specs, names)
    order, cycles = _in_order(links)
    faults += (_circle(specs, links, cycle) for cycle in cycles)
    found = [*specs]
    broken = {fault.number for fault in faults} | (links.keys() - {*order})
    for index in order:
        spec = specs[index]
        ids = {name: found[names[name]].job_id for _, name in _named(spec) if name in names}
        is_broken = index in broken or not broken.isdisjoint(links[index])
        if is_broken or not (spec.job_id and all(map(ids.get, spec.inputs.values()))):
            broken.add(index)
        else:
            inputs = {key: ids[name] for key, name in spec.inputs.items()}
            found[index] = with_ids(spec, inputs, [*filter(None, map(ids.get, spec.after))])
    for index in broken:
        found[index] = replace(specs[index], job_id="", inputs={}, after=())
    return found, [*faults, *_twice(found, place)]


def _named(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield the names of the jobs before one, each after its key."""
    yield from ((f"inputs.{key}", name) for key, name in spec.inputs.items())
    yield from (("after", name) for name in spec.after)


def _resolved(specs: Sequence[JobSpec], names: Mapping[str, int]) -> tuple[Links, list[Fault]]:
    links: Links = {}
    faults: list[Fault] = []
    for index, spec in enumerate(specs):
        if not (spec.after or spec.inputs):
            continue
        before = links.setdefault(index, {})
        for key, name in _named(spec):
            other = names.get(name)
            if other is None:
                hint = _hint(name, names) if len(faults) < _MOST_HINTS else ""
                faults.append(Fault(index, key, f"no job here is called {name!r}{hint}"))
            elif other == index:
                faults.append(Fault(index, key, f"{name!r} is this job itself; leave it out"))
            else:
                before.setdefault(other, key)
    return links, faults


def _hint(name: str, names: Mapping[str, int]) -> str:
    close = meant(name, names) if len(names) <= _MOST_COMPARED else None
    return f"; did you mean {close!r}?" if close else "; give the name of one"


def _in_order(links: Links) -> tuple[list[int], list[list[int]]]:
    """Return the linked jobs, each after those before it, and cycles, each job after its next one.

    What is in a cycle is in no order; beyond `_MOST_CYCLES` nothing is.
    """
    graph = {index: [one for one in before if one in links] for index, before in links.items()}
    cycles: list[list[int]] = []
    while len(cycles) < _MOST_CYCLES:
        try:
            return [*TopologicalSorter(graph).static_order()], cycles
        except CycleError as error:
            cycle = error.args[1][:0:-1]  # without its last, which is its first
            first = cycle.index(min(cycle))
            cycles.append([*cycle[first:], *cycle[:first]])
            left = graph.keys() - {*cycle}
            graph = {index: [*filter(left.__contains__, graph[index])] for index in sorted(left)}
    return [], cycles


def _circle(specs: Sequence[JobSpec], links: Links, cycle: Sequence[int]) -> Fault:
    """Return the fault of a cycle, at the first of its jobs."""
    first, after, *_ = cycle
    names = [specs[one].name for one in (*cycle, first)]
    if len(names) > _MOST_NAMED:
        names[_MOST_NAMED - 2 : -1] = ["..."]
    shown = " after ".join(names)
    message = f"none of these could begin: {shown}; take one of them out of the circle"
    return Fault(first, links[first][after], message)


def _twice(specs: Sequence[JobSpec], place: Callable[[int], str]) -> Iterator[Fault]:
    """Yield a fault for each job that is the same as one before it."""
    before: dict[str, int] = {}
    for index, spec in enumerate(specs):
        first = before.setdefault(spec.job_id, index)
        if spec.job_id and first != index:
            keys = "program, parameters, data, inputs"
            if spec.program is None:
                keys = "model, mode, hyper, data, inputs, split_recipe, fold, train_hosts"
            message = (
                f"is the same job as {place(first)}: {keys} and seed are equal; change one, or "
                "remove an entry"
            )
            yield Fault(index, "", message)
