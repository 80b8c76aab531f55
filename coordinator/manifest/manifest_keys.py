"""What the tables of a manifest may say: keys, kinds and limits. The format is manifest.md.

A new key of a job begins in `JobTable` here, with a field of `JobSpec` (jobs/plan_entries.py) that
`reader.py` fills; what a host must have is a field of `Needs` instead, an amount also in `AMOUNTS`
(both in broker/protocol/messages/values.py). If the result depends on it: `id_of`, and `_IDENTITY`
in `diff.py`. If the agent needs it: `Assign` (broker/protocol/messages/jobs.py),
core/assignment.py, and for the trainer agent/process/command.py. A key of a host: `HostTable`,
`HostPolicy`. At last `make generate`, and docs/reference/manifest.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from broker.protocol.messages import (
    MAX_DATA,
    MAX_FOLDS,
    MAX_INPUTS,
    MAX_PLAN_NAME,
    Needs,
    SplitRecipe,
)
from broker.protocol.quiet_hours import HoursText
from coordinator.jobs.plan_entries import (
    DEFAULT_FOLDS,
    DEFAULT_GRACE_S,
    DEFAULT_RETRIES,
    DEFAULT_STALL_S,
)

Priority = Annotated[int, Field(ge=-1_000_000, le=1_000_000)]
# No longer than an assignment can carry: `broker.protocol.messages.Assign`.
MAX_HYPER: Final = 64
MAX_HOURS: Final = 32
MAX_AFTER: Final = 100  # jobs that one is to come after
TrainHosts = Annotated[list[Annotated[str, Field(max_length=2000)]], Field(max_length=1000)]
Gib = Annotated[float, Field(gt=0, le=1_000_000)]
Seconds = Annotated[float, Field(ge=0, le=1e8)]  # 0: no limit


class Table(BaseModel):
    """Base of all: what is not known, or of another kind, is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class RunTable(Table):
    """What [defaults] may say as well as a job."""

    split_recipe: SplitRecipe = "host"
    folds: Annotated[int, Field(ge=2, le=MAX_FOLDS)] = DEFAULT_FOLDS
    fold: Annotated[int, Field(ge=1, le=MAX_FOLDS)] | None = None
    train_hosts: TrainHosts = []
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    n_resamples: Annotated[int, Field(ge=0, le=1_000_000)] = 1000
    timeout_s: Seconds = 0.0
    stall_timeout_s: Seconds = DEFAULT_STALL_S
    retries: Annotated[int, Field(ge=0, le=100)] = DEFAULT_RETRIES


class Defaults(RunTable):
    """What holds for every job that does not say otherwise."""

    prefer_cuda_grace_s: Annotated[float, Field(ge=0, le=1e7)] = DEFAULT_GRACE_S

    def of_job(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return a job's table with what it leaves to [defaults]."""
        given = self.model_dump(exclude_unset=True, exclude={"prefer_cuda_grace_s"})
        return given | dict(table)


class HostTable(Table):
    """[hosts.NAME]."""

    description: Annotated[str, Field(max_length=2000)] = ""
    priority: Priority = 0
    allow_jobs: list[str] = []
    deny_jobs: list[str] = []
    max_ram_gib: Gib | None = None
    max_vram_gib: Gib | None = None
    cuda: bool | None = None
    slots: Annotated[int, Field(ge=0, le=64)] | None = None
    quiet_hours: Annotated[list[HoursText], Field(max_length=MAX_HOURS)] = []
    idle_only: bool = False
    on_busy: Literal["release", "finish"] = "release"


class JobTable(RunTable):
    """[[jobs]]."""

    name: str | None = None
    model: str
    program: str | None = None
    mode: Literal["realistic", "oracle"] | None = None
    priority: Priority = 0
    require_cuda: bool = False
    prefer_cuda: bool = False
    min_vram_gib: Gib | None = None
    min_ram_gib: Gib | None = None
    min_cores: Annotated[int, Field(ge=1, le=65_536)] | None = None
    min_disk_gib: Gib | None = None
    allowed_hosts: list[str] = []
    denied_hosts: list[str] = []
    on_lost: Literal["keep", "stop"] | None = None
    hyper: Annotated[dict[str, Any], Field(max_length=MAX_HYPER)] = {}
    parameters: Annotated[dict[str, Any], Field(max_length=MAX_HYPER)] = {}
    data: Annotated[dict[str, str], Field(max_length=MAX_DATA)] = {}
    after: Annotated[list[str], Field(max_length=MAX_AFTER)] = []
    inputs: Annotated[dict[str, str], Field(max_length=MAX_INPUTS)] = {}


def is_plan_name(value: Any) -> bool:
    """Whether a value may be the top-level `name`: short, and safe to print anywhere."""
    return (
        isinstance(value, str)
        and 1 <= len(value) <= MAX_PLAN_NAME
        and value.isprintable()
        and value == value.strip()
    )


def needs_of(job: JobTable, least: Needs) -> Needs:
    """Return what a job needs: what it says, and at least what its program needs."""
    found = {}
    for name in Needs.model_fields:
        values = (getattr(job, name), getattr(least, name))
        found[name] = max((one for one in values if one is not None), default=None)
    return Needs(**found)
