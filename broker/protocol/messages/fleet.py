"""What people and programs are told of the fleet as a whole: its jobs, its coordinator, its broker.

No host needs any of it.
"""

from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter

from broker.protocol.messages.values import (
    MAX_DATA,
    ArtifactId,
    Fault,
    HostName,
    Id,
    JobId,
    JobStateName,
    Line,
    Metrics,
    Piece,
    Wire,
    Word,
    omitted,
)

MAX_PLAN_NAME: Final = 64  # characters


class WaitsFor(Piece):
    """What a pending job waits for, and on which hosts: another job, or what somebody has to do."""

    what: Literal["data", "resume", "job", "program", "dataset", "input"] = Field(
        description="Prepared data on one of the hosts; or `fleet resume` of one: they are drained "
        "or in quarantine; or that another job is completed; or what none of the hosts could use."
    )
    hosts: Annotated[tuple[HostName, ...], Field(max_length=16)]
    more: bool = Field(default=False, description="There are more hosts, or jobs, than are named.")
    job: Line = omitted("", "The job that it comes after.")
    state: Line = omitted(
        "",
        "How that is: pending, claimed, running, uploading (its result is on the way); "
        "or what does not pass by itself: failed, cancelled, orphaned (not in the plan any more), "
        "gone (its artifact is), unknown.",
    )
    fault: Fault | None = omitted(
        None, "Of the first host that could not use program, dataset or input."
    )


class JobRow(Wire):
    """One job as people and scripts see it; retained at its topic. Times are RFC 3339 in UTC."""

    name: Line
    state: JobStateName
    host: str | None
    job_id: JobId
    attempt: int
    error: str | None
    error_kind: str | None = Field(
        default=None,
        description="Of `error`: `kind` of the report `failed`; `lost`: no attempt came back.",
    )
    model: str
    mode: str = Field(description="Empty: the trainer reads no prepared data.")
    priority: int
    artifact_id: ArtifactId | None
    metrics: Metrics | None
    created_at: str
    started_at: str | None
    finished_at: str | None
    ran_s: float | None = Field(
        default=None,
        description="Seconds that the trainer ran in the attempt that ended it; none: unknown.",
    )
    in_plan: bool = True
    submitted_by: str | None = Field(
        default=None, description="Who asked for it with `fleet run`; none: the manifest did."
    )
    program: ArtifactId | None = omitted(
        None, "The sha256 of its program's parcel; none: its trainer is a host's own."
    )
    datasets: Annotated[tuple[ArtifactId, ...], Field(max_length=MAX_DATA)] = omitted(
        (), "The digests of the datasets that it reads."
    )
    marks: tuple[Word, ...] = omitted(
        (),
        "What is wrong with its result, as codes. below_chance: the interval of its "
        "AUROC is below 0.5; below_floor: its AUROC is below that of a plain model.",
    )
    unplaceable: bool = omitted(
        False,
        "It is pending, and no known host could ever run it as things are. Answers to "
        "`list` and `show` say so; a retained row does not know.",
    )
    waits_for: WaitsFor | None = omitted(
        None,
        "It is pending, and no host can take it before somebody has done something, or "
        "another job is completed. Where that is said, see `unplaceable`.",
    )


class NoRoom(Piece):
    """Results that wait at their hosts for room on the disk of the coordinator's store."""

    jobs: int = Field(default=1, ge=1, description="How many jobs wait for it.")
    needed_bytes: int = Field(ge=0, description="What has yet to come, of all of them.")
    free_bytes: int = Field(ge=0, description="When the last of them was refused.")
    reserve_bytes: int = Field(ge=0, description="What stays free, by `reserve_bytes`.")


class Summary(Wire):
    """Counts by state; retained."""

    jobs: dict[str, int]
    hosts: dict[str, int]
    dropped: dict[str, int] = Field(default={}, description="Garbage dropped, by kind of topic.")
    paused: bool = Field(default=False, description="No new jobs are given out.")
    no_room: NoRoom | None = omitted(None, "None: nothing waits for it.")
    plan: str = Field(
        default="", max_length=MAX_PLAN_NAME, description="What the manifest calls the plan."
    )


class Holder(Wire):
    """Which coordinator serves the fleet; retained, and no will touches it."""

    ledger: Id = Field(description="Whose jobs these are: goes with the coordinator's receipts.")
    installation: Id = Field(description="The state folder; a copy of it is another one.")
    machine: Line = Field(description="Its name, for people.")
    instance: Id = Field(description="The process.")


class BrokerRefusals(Wire):
    """What the embedded broker has refused since it was started, by reason; retained."""

    refused: Annotated[dict[Word, Annotated[int, Field(ge=0)]], Field(max_length=64)]


JOB_ROW: Final = TypeAdapter(JobRow)
SUMMARY: Final = TypeAdapter(Summary)
HOLDER: Final = TypeAdapter(Holder)
BROKER_REFUSED: Final = TypeAdapter(BrokerRefusals)
