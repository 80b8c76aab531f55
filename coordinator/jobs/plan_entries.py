"""What a manifest means: jobs, policies of hosts, and the id that makes a job the same job.

Plain values without IO; `coordinator/manifest/reader.py` reads them from a file.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import Field, JsonValue, TypeAdapter

from broker.protocol.messages import Dataset, Needs, Program, PushKind

CHECKPOINTS: Final = "checkpoints"  # in the store it stands where a result has its mode
PROGRAMS: Final = "programs"  # likewise, of a parcel
DATASETS: Final = "datasets"  # likewise, of packs and layouts
DEFAULT_GRACE_S: Final = 300.0
DEFAULT_STALL_S: Final = 7200.0
DEFAULT_RETRIES: Final = 2
# What a job says only to a trainer that reads prepared data.
OF_TELEMETRY: Final = ("mode", "split_recipe", "folds", "fold", "train_hosts", "n_resamples")
DEFAULT_FOLDS: Final = 5  # of a job with `split_recipe = "folds"`

# Only jobs with that recipe have it.
_OfFolds = Annotated[int, Field(exclude_if=lambda number: not number)]


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job of the plan. `folds` is 0 unless the recipe is folds; `fold` 0 means all of them.

    Of a trainer that reads no prepared data `mode` is empty, and the split means nothing.
    `version` is that of a trainer of a host's own; empty: of one that is built in. `program` is the
    trainer that the fleet brings to the host; `model` is its name then. `inputs` has by their names
    the ids of the jobs whose artifacts it reads. It starts when these and `after` are completed.
    """

    job_id: str
    name: str
    model: str
    mode: str
    hyper: Mapping[str, JsonValue]
    split_recipe: str
    seed: int
    n_resamples: int
    priority: int
    needs: Needs
    train_hosts: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    denied_hosts: tuple[str, ...] = ()
    on_lost: str | None = None
    timeout_s: float | None = None
    stall_timeout_s: float | None = None
    retries: int = DEFAULT_RETRIES
    folds: _OfFolds = 0
    fold: _OfFolds = 0
    version: Annotated[str, Field(exclude_if=lambda version: not version)] = ""
    program: Annotated[Program | None, Field(exclude_if=lambda program: program is None)] = None
    data: Annotated[tuple[Dataset, ...], Field(exclude_if=lambda data: not data)] = ()
    inputs: Annotated[Mapping[str, str], Field(exclude_if=lambda inputs: not inputs)] = field(
        default_factory=dict
    )
    after: Annotated[tuple[str, ...], Field(exclude_if=lambda after: not after)] = ()

    def program_digest(self) -> str:
        """Return the sha256 of its program's parcel; empty: its trainer is a host's own."""
        return self.program.digest if self.program is not None else ""

    def digests(self, kind: PushKind) -> frozenset[str]:
        """Return the digest of its program, or those of its datasets."""
        if kind == "program":
            return frozenset(filter(None, [self.program_digest()]))
        return frozenset(one.digest for one in self.data)

    def predecessors(self) -> tuple[str, ...]:
        """Return the ids of the jobs that come before it, each once."""
        if not (self.after or self.inputs):  # as most have none
            return ()
        return tuple(dict.fromkeys((*self.inputs.values(), *self.after)))

    def named_hosts(self) -> tuple[str, ...]:
        """Return the hosts that it may or may not go to by their names."""
        return (*self.allowed_hosts, *self.denied_hosts)

    def admits(self, hosts: Iterable[str]) -> Iterator[str]:
        """Yield those of the hosts that its lists let it go to."""
        allowed, denied = self.allowed_hosts, self.denied_hosts
        return (one for one in hosts if one not in denied and (not allowed or one in allowed))


@dataclass(frozen=True, slots=True)
class HostPolicy:
    """What the plan says of a host; a host that it does not name gets the defaults."""

    name: str
    description: str = ""
    priority: int = 0
    allow_jobs: tuple[str, ...] = ()
    deny_jobs: tuple[str, ...] = ()
    max_ram_gib: float | None = None
    max_vram_gib: float | None = None
    cuda: bool | None = None
    slots: int | None = None
    quiet_hours: tuple[str, ...] = ()
    idle_only: bool = False
    on_busy: Literal["release", "finish"] = "release"


@functools.cache  # built when first used: a command that needs none starts sooner
def _spec() -> TypeAdapter[JobSpec]:
    return TypeAdapter(JobSpec)


@functools.cache
def _policy() -> TypeAdapter[HostPolicy]:
    return TypeAdapter(HostPolicy)


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole manifest. `name` is what people call it; empty: nothing."""

    jobs: tuple[JobSpec, ...]
    hosts: Mapping[str, HostPolicy] = field(default_factory=dict)
    prefer_cuda_grace_s: float = DEFAULT_GRACE_S
    name: str = ""


def id_of(spec: JobSpec) -> str:
    """Return the id of a job by what its spec says, whatever id stands there.

    It is the sha256, in hex, of the canonical JSON of what decides the result. Hyperparameters
    count as they are written, without the trainer's defaults: a default that changes with a version
    must not make a finished job look new. 1 and 1.0 are the same number, and the order of
    `train_hosts` does not matter. A program counts by the digest of its parcel.
    """
    canonical: dict[str, Any] = {
        "hyper": {key: _canonical(value) for key, value in spec.hyper.items()},
        "model": spec.model,
        "seed": spec.seed,
    }
    if spec.mode:
        hosts = sorted(spec.train_hosts)
        canonical |= {"mode": spec.mode, "split_recipe": spec.split_recipe, "train_hosts": hosts}
    if spec.version:
        canonical["version"] = spec.version
    if spec.program is not None:
        canonical["program"] = spec.program.digest
    if spec.data:
        canonical["data"] = {one.name: one.digest for one in spec.data}
    if spec.inputs:
        canonical["inputs"] = {**spec.inputs}
    if spec.folds:
        canonical |= {"folds": spec.folds, "fold": spec.fold}
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def spec_to_dict(spec: JobSpec) -> dict[str, Any]:
    """Return a job's spec as JSON values, for people and for the ledger."""
    return dict(_spec().dump_python(spec, mode="json"))


def spec_to_json(spec: JobSpec) -> str:
    """Return a job's spec as canonical JSON text."""
    return json.dumps(spec_to_dict(spec), sort_keys=True, separators=(",", ":"))


def spec_from_json(text: str) -> JobSpec:
    """Return the spec in a JSON text. Raises ValueError when it is not one."""
    return _spec().validate_json(text)


def spec_from_dict(found: Any) -> JobSpec:
    """Return the spec in JSON values. Raises ValueError when it is not one."""
    return _spec().validate_python(found)


def policy_from_dict(found: Any) -> HostPolicy:
    """Return the policy in JSON values. Raises ValueError when it is not one."""
    return _policy().validate_python(found)


def policy_to_dict(policy: HostPolicy) -> dict[str, Any]:
    """Return a host's policy as JSON values."""
    return dict(_policy().dump_python(policy, mode="json"))


def _canonical(value: JsonValue) -> JsonValue:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    return value
