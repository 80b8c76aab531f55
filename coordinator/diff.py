"""What a reload would do to the plan, as values: which jobs it adds, changes, leaves, keeps.

`planning.take_plan` carries it out, and names what has changed by the same function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import JsonValue

from coordinator.plan import HostPolicy, JobSpec

# What is changed, its value before, and after.
Change = tuple[str, JsonValue, JsonValue]

_IN_PLACE: Final = (
    "name",
    "priority",
    "n_resamples",
    "needs",
    "allowed_hosts",
    "denied_hosts",
    "on_lost",
    "timeout_s",
    "stall_timeout_s",
    "retries",
)
# What the id is made of: where one of these differs, it is another job.
_IDENTITY: Final = ("model", "mode", "split_recipe", "train_hosts", "seed")
_POLICY: Final = tuple(name for name in HostPolicy.__slots__ if name != "name")


@dataclass(frozen=True, slots=True)
class Known:
    """A job that the coordinator has. `submitted`: beside the manifest, which does not touch it."""

    spec: JobSpec
    state: str
    in_plan: bool
    host: str | None = None
    submitted: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of one job. `changes` say what is different, for `replace` from which job."""

    action: str  # add, change, adopt, replace, orphan, keep
    spec: JobSpec
    changes: tuple[Change, ...] = ()
    known: Known | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """What a reload would do. `hosts` maps a host to what changes in its policy."""

    steps: tuple[Step, ...]
    hosts: Mapping[str, tuple[Change, ...]] = field(default_factory=dict)

    def counts(self) -> dict[str, int]:
        """Return how many jobs each action is for; all of them are named."""
        counts = dict.fromkeys(("add", "change", "adopt", "replace", "orphan", "keep"), 0)
        for step in self.steps:
            counts[step.action] += 1
        return counts

    def is_empty(self) -> bool:
        """Whether nothing would change."""
        return not self.hosts and all(step.action == "keep" for step in self.steps)


def spec_changes(before: JobSpec, after: JobSpec) -> tuple[Change, ...]:
    """Return what of a job is changed in place; its needs one by one.

    A hyperparameter is named only where nothing else differs: the id says that it is equal, and
    another way to write a number (1, 1.0) is no news.
    """
    found: list[Change] = []
    for name in _IN_PLACE:
        if name == "needs":
            old, new = before.needs.model_dump(), after.needs.model_dump()
            found += [(key, old[key], new[key]) for key in new if old[key] != new[key]]
        elif getattr(before, name) != getattr(after, name):
            found.append((name, _json(getattr(before, name)), _json(getattr(after, name))))
    if not found and before != after:
        found.append(("hyper", dict(before.hyper), dict(after.hyper)))
    return tuple(found)


def identity_changes(before: JobSpec, after: JobSpec) -> tuple[Change, ...]:
    """Return what makes `after` another job than `before`."""
    found: list[Change] = [
        (name, _json(getattr(before, name)), _json(getattr(after, name)))
        for name in _IDENTITY
        if getattr(before, name) != getattr(after, name)
    ]
    for key in sorted({*before.hyper} | {*after.hyper}):
        old, new = before.hyper.get(key), after.hyper.get(key)
        if old != new:
            found.append((f"hyper.{key}", old, new))
    return tuple(found)


def difference(
    known: Iterable[Known],
    wanted: Iterable[JobSpec],
    policies: Mapping[str, HostPolicy],
    wanted_policies: Mapping[str, HostPolicy],
) -> Difference:
    """Return what it would take to make `wanted` the plan.

    `policies` are those in force of the hosts that are known; a host without one in
    `wanted_policies` gets the defaults.
    """
    by_id = {one.spec.job_id: one for one in known}
    specs = {spec.job_id: spec for spec in wanted}
    leaving = {
        one.spec.name: one
        for one in by_id.values()
        if one.in_plan and not one.submitted and one.spec.job_id not in specs
    }
    steps = [_step(by_id.get(spec.job_id), spec, leaving) for spec in specs.values()]
    replaced = {step.known.spec.job_id for step in steps if step.known and step.action == "replace"}
    steps += [
        Step("orphan", one.spec, known=one)
        for one in leaving.values()
        if one.spec.job_id not in replaced
    ]
    hosts = {
        name: found
        for name, policy in sorted(policies.items())
        if (found := policy_changes(policy, wanted_policies.get(name) or HostPolicy(name)))
    }
    return Difference(tuple(steps), hosts)


def policy_changes(before: HostPolicy, after: HostPolicy) -> tuple[Change, ...]:
    """Return what of a host's policy is changed."""
    return tuple(
        (name, _json(getattr(before, name)), _json(getattr(after, name)))
        for name in _POLICY
        if getattr(before, name) != getattr(after, name)
    )


def _step(known: Known | None, spec: JobSpec, leaving: Mapping[str, Known]) -> Step:
    if known is None:
        # An entry of the same name that is another job now: people have changed it.
        old = leaving.get(spec.name)
        if old is None:
            return Step("add", spec)
        return Step("replace", spec, identity_changes(old.spec, spec), old)
    changes = spec_changes(known.spec, spec)
    if not known.in_plan:
        return Step("adopt", spec, changes, known)
    return Step("change" if changes else "keep", spec, changes, known)


def _json(value: Any) -> JsonValue:
    return list(value) if isinstance(value, tuple) else value
