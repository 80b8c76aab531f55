"""What a reload does to the plan, as values: which jobs it adds, changes, leaves, and in words.

`plan_changes.take_plan` carries it out, `fleet plan` shows it before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import JsonValue

from broker.figures import in_toml
from broker.protocol.messages import Dataset, Needs, Program
from coordinator.jobs.causes import STEPS
from coordinator.jobs.plan_entries import HostPolicy, JobSpec, Plan

# `what` is changed, its value before (`from`), and after (`to`).
Change = dict[str, JsonValue]

MOST_CHARS: Final = 40  # of a value, where changes are told
_DIGITS: Final = 12  # of a program's digest, or of a job's id
_LINKS: Final = ("inputs", "after")  # which have the ids of other jobs

# What the id is made of, beside `hyper`: where one of these differs, it is another job.
_IDENTITY: Final = (
    "model",
    "program",
    "version",
    "mode",
    "split_recipe",
    "folds",
    "fold",
    "train_hosts",
    "seed",
    "data",
    "inputs",
)
# All else, so that no field of a job changes unseen.
_IN_PLACE: Final = tuple(
    name for name in JobSpec.__slots__ if name not in {*_IDENTITY, "job_id", "hyper"}
)
_POLICY: Final = tuple(name for name in HostPolicy.__slots__ if name != "name")
# As the ledger's events say it, but `replaced`: the new job is added, the old one orphaned.
_FIRST: Final = ("replaced", "orphaned", "changed", "adopted", "added")  # as they are told


@dataclass(frozen=True, slots=True)
class Known:
    """A job that the coordinator has. `submitted`: beside the manifest, until that names it."""

    spec: JobSpec
    state: str
    in_plan: bool
    host: str | None = None
    submitted: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of one job. `changes` say what is different, of one `replaced` from `known`."""

    action: str  # one of STEPS
    spec: JobSpec
    changes: tuple[Change, ...] = ()
    known: Known | None = None

    def to_dict(self) -> dict[str, JsonValue]:
        """Return it as JSON values: `state` and `host` are those of the job that was there."""
        known = self.known
        is_replaced = known is not None and self.action == "replaced"
        return {
            "action": self.action,
            "job_id": self.spec.job_id,
            "name": self.spec.name,
            "replaces": known.spec.job_id if known and is_replaced else None,
            "state": known.state if known else None,
            "host": known.host if known else None,
            "changes": [*self.changes],
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """What a reload does: steps, changed policies by host, changes of the whole plan."""

    steps: tuple[Step, ...]
    hosts: Mapping[str, tuple[Change, ...]] = field(default_factory=dict)
    settings: tuple[Change, ...] = ()

    def counts(self) -> dict[str, int]:
        """Return how many jobs there are of each action, and how many hosts and settings change."""
        counts = dict.fromkeys(STEPS, 0)
        for step in self.steps:
            counts[step.action] += 1
        return counts | {"hosts": len(self.hosts), "settings": len(self.settings)}

    def told(self) -> list[Step]:
        """Return the steps that change something, in the order in which they are told."""
        return [step for action in _FIRST for step in self.steps if step.action == action]

    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return is_nothing(self.counts())


def is_nothing(counts: Mapping[str, int]) -> bool:
    """Whether by these counts, see `Difference.counts`, nothing changes."""
    return not any(count for what, count in counts.items() if what != "unchanged")


def change(what: str, before: JsonValue, after: JsonValue) -> Change:
    """Return a change as JSON values."""
    return {"what": what, "from": before, "to": after}


def changes_in_words(changes: Iterable[Change]) -> str:
    """Return changes in a line: `priority 0 → 5, min_cores none → 2`."""
    return ", ".join(f"{one['what']} {values_in_words(one)}" for one in changes)


def values_in_words(changed: Change) -> str:
    """Return the old and the new value of a change: `0 → 5`."""
    return f"{_toml(changed['from'])} → {_toml(changed['to'])}"


def _toml(value: JsonValue) -> str:
    if value is None or value == []:
        return "none"
    text = in_toml(value)
    return text if len(text) <= MOST_CHARS else f"{text[: MOST_CHARS - 1]}…"


def spec_changes(before: JobSpec, after: JobSpec) -> tuple[Change, ...]:
    """Return what of a job is changed in place; its identity only where nothing else differs."""
    if before == after:  # as most are, of a large plan
        return ()
    found: list[Change] = []
    for name in _IN_PLACE:
        if name == "needs":
            found += _changed(Needs.model_fields, before.needs, after.needs)
        else:
            found += _changed((name,), before, after)
    return tuple(found) or identity_changes(before, after)


def identity_changes(before: JobSpec, after: JobSpec) -> tuple[Change, ...]:
    """Return what makes `after` another job than `before`."""
    found = _changed(_IDENTITY, before, after)
    for key in sorted({*before.hyper} | {*after.hyper}):
        old, new = before.hyper.get(key), after.hyper.get(key)
        if old != new:
            table = "parameters" if after.program else "hyper"
            found.append(change(f"{table}.{key}", old, new))
    return tuple(found)


def difference(
    known: Iterable[Known],
    plan: Plan,
    policies: Mapping[str, HostPolicy],
    grace_s: float | None = None,
    name: str | None = None,
) -> Difference:
    """Return what it takes to make `plan` the running one.

    `policies` are those in force, also of hosts that nobody has heard of; whoever is not named
    there, or by `plan`, has the defaults. `grace_s` is the `prefer_cuda_grace_s` in force; none
    where no plan can change it. `name` is that of the plan in force; none where there is none.
    """
    by_id = {one.spec.job_id: one for one in known}
    specs = {spec.job_id: spec for spec in plan.jobs}
    leaving = sorted(
        (
            one
            for one in by_id.values()
            if one.in_plan and not one.submitted and one.spec.job_id not in specs
        ),
        key=lambda one: (one.spec.name, one.spec.job_id),  # whatever order they are known in
    )
    names = {one.spec.name: one for one in leaving}
    steps = [_step(by_id.get(spec.job_id), spec, names) for spec in specs.values()]
    replaced = {one.known.spec.job_id for one in steps if one.known and one.action == "replaced"}
    steps += [
        Step("orphaned", one.spec, known=one) for one in leaving if one.spec.job_id not in replaced
    ]
    called = {one.spec.job_id: one.spec.name for one in by_id.values()}
    called |= {spec.job_id: spec.name for spec in plan.jobs}
    steps = [_by_names(step, called) for step in steps]
    hosts = {
        name: found
        for name in sorted({*policies, *plan.hosts})
        if (found := tuple(_changed(_POLICY, _of(policies, name), _of(plan.hosts, name))))
    }
    after_s = plan.prefer_cuda_grace_s
    settings: list[Change] = []
    if name is not None and name != plan.name:
        settings.append(change("name", name or None, plan.name or None))
    if grace_s is not None and grace_s != after_s:
        settings.append(change("prefer_cuda_grace_s", grace_s, after_s))
    return Difference(tuple(steps), hosts, tuple(settings))


def _of(policies: Mapping[str, HostPolicy], name: str) -> HostPolicy:
    return policies.get(name) or HostPolicy(name)


def _changed(names: Iterable[str], before: object, after: object) -> list[Change]:
    """Return which of these fields differ."""
    pairs = ((name, getattr(before, name), getattr(after, name)) for name in names)
    return [change(name, _json(old), _json(new)) for name, old, new in pairs if old != new]


def _step(known: Known | None, spec: JobSpec, leaving: Mapping[str, Known]) -> Step:
    if known is None:
        # An entry of the same name that is another job now: people have changed it.
        old = leaving.get(spec.name)
        if old is None:
            return Step("added", spec)
        return Step("replaced", spec, identity_changes(old.spec, spec), old)
    changes = spec_changes(known.spec, spec)
    if known.submitted or not known.in_plan:
        return Step("adopted", spec, changes, known)
    return Step("changed" if changes else "unchanged", spec, changes, known)


def _by_names(step: Step, called: Mapping[str, str]) -> Step:
    """Return a step whose changes have the names of other jobs in place of their ids."""
    if not any(one["what"] in _LINKS for one in step.changes):
        return step

    def told(value: Any, *, in_full: bool) -> JsonValue:
        if isinstance(value, Mapping):
            return {key: told(one, in_full=in_full) for key, one in value.items()}
        if isinstance(value, str):
            name = called.get(value, value[:_DIGITS])
            return f"{name} {value[:_DIGITS]}" if in_full else name
        return [told(one, in_full=in_full) for one in value]

    def renamed(one: Change) -> Change:
        if one["what"] not in _LINKS:
            return one
        is_same = told(one["from"], in_full=False) == told(one["to"], in_full=False)
        return one | {key: told(one[key], in_full=is_same) for key in ("from", "to")}

    return replace(step, changes=tuple(map(renamed, step.changes)))


def _json(value: Any) -> JsonValue:
    if isinstance(value, Program):
        by = f", signed by {', '.join(value.signers)}" if value.signers else ""
        return value.digest[:_DIGITS] + by
    if isinstance(value, Dataset):
        return f"{value.name} = {value.digest[:_DIGITS]}"
    if isinstance(value, Mapping):
        return {**value}
    return [_json(one) for one in value] if isinstance(value, tuple) else value
