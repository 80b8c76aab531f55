"""Jobs: what a coordinator asks of an agent, and its reports."""

from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter

from broker.protocol.messages.values import (
    CHUNK_BYTES,
    DEFERRED,
    MAX_DATA,
    MAX_LISTED,
    MAX_SIGNERS,
    MAX_SMALL_BYTES,
    ArtifactId,
    Attempt,
    Bytes,
    ChunkBytes,
    Dataset,
    FoldNumber,
    Hyper,
    Id,
    Input,
    JobId,
    JobStateName,
    Line,
    Metrics,
    Mode,
    Needs,
    Objection,
    Piece,
    Program,
    ProgramSignature,
    Receipt,
    Short,
    SplitRecipe,
    Text,
    Why,
    Wire,
    Word,
    decode,
    omitted,
)

MAX_INPUTS: Final = 16
MAX_CRL_CHARS: Final = 64 * 1024

# Coordinator to agent


class HostRules(Piece):
    """When a host takes no jobs, and what becomes of those that run; judged by the host's clock."""

    quiet_hours: Annotated[tuple[Line, ...], Field(max_length=32)] = ()
    idle_only: bool = False
    on_busy: Literal["release", "finish"] = "release"


class Checkpoint(Piece):
    """Where an earlier attempt left off: an artifact that the coordinator has."""

    artifact_id: ArtifactId
    size_bytes: Annotated[int, Field(ge=1, le=1 << 50)]
    chunk_bytes: ChunkBytes
    attempt: Attempt = Field(description="The attempt that has left it.")


class Assign(Wire):
    """Carry out this attempt of this job. Answered by accepted or refused.

    It is for one process of the agent: one that was started since, or another agent that uses the
    host's name, takes no notice, so that an attempt never runs twice. The trainer starts when a
    lease answers the acceptance.
    """

    type: Literal["assign"] = "assign"
    name: Line
    job_id: JobId
    attempt: Attempt
    id: Id
    instance: Id
    model: Word
    mode: Mode | Literal[""] = Field(
        default="", description="Empty: the trainer reads no prepared data."
    )
    version: Short = omitted("", "Of the trainer; empty: any.")
    hyper: Hyper = {}
    split_recipe: SplitRecipe = "host"
    folds: FoldNumber = Field(default=0, description="How many; 0 with another recipe.")
    fold: FoldNumber = Field(default=0, description="The only one to be trained; 0: all of them.")
    train_hosts: Annotated[tuple[Line, ...], Field(max_length=1000)] = ()
    seed: int = Field(default=0, ge=0, le=2**32 - 1)
    n_resamples: int = Field(default=1000, ge=0, le=1_000_000)
    needs: Needs = Needs()
    use_cuda: bool = Field(default=False, description="A CUDA device goes with the slot.")
    timeout_s: float | None = Field(
        default=None, gt=0, description="The trainer is ended when it has run for so long."
    )
    stall_timeout_s: float | None = Field(
        default=None, gt=0, description="The trainer is ended when it has said nothing for so long."
    )
    on_lost: Literal["keep", "stop"] | None = Field(
        default=None,
        description="What becomes of the trainer when the lease has run out. Without it, a trainer "
        "that can resume is stopped, and one that cannot goes on.",
    )
    checkpoint: Checkpoint | None = Field(
        default=None, description="To go on from, unless the host has a newer one of its own."
    )
    void_attempt: int = Field(
        default=0, ge=0, description="Checkpoints of attempts up to this one are not used."
    )
    receipt: Receipt = ""
    program: Program | None = omitted(
        None, "Its trainer is this program, which the agent fetches as it does checkpoints."
    )
    signatures: Annotated[tuple[ProgramSignature, ...], Field(max_length=MAX_SIGNERS)] = omitted(
        (), "Of the program; one that the host's owner accepts is enough."
    )
    data: Annotated[tuple[Dataset, ...], Field(max_length=MAX_DATA)] = omitted(
        (), "What its trainer reads."
    )
    inputs: Annotated[tuple[Input, ...], Field(max_length=MAX_INPUTS)] = omitted(
        (), "What jobs that came before it have brought."
    )
    crl: Annotated[str, Field(max_length=MAX_CRL_CHARS)] = omitted(
        "", "The CA's revocation list, in PEM, by which signers are judged."
    )


class LeasedJob(Piece):
    """An attempt that a lease is for."""

    job_id: JobId
    attempt: Attempt


class Lease(Wire):
    """The answer to accepted and to a heartbeat that lists jobs: nobody else is given these.

    The lease runs for `lease_s` seconds from the moment at which the agent sent what `heard` names;
    the coordinator counts from the moment at which it came, which is later.
    """

    type: Literal["lease"] = "lease"
    id: Id
    heard: Id = Field(description="The id of the acceptance, or the `seq` of the heartbeat.")
    lease_s: float = Field(gt=0)
    jobs: Annotated[tuple[LeasedJob, ...], Field(max_length=MAX_LISTED)]


class Cancel(Wire):
    """Stop this attempt and throw its work away. Answered by stopped, held or not."""

    type: Literal["cancel"] = "cancel"
    id: Id
    job_id: JobId
    attempt: Attempt
    why: Word = Field(
        default="cancelled",
        description="requeued, revoked, unknown, or the job's state by now.",
    )
    keep_finished: bool = Field(
        default=False, description="A result that is there already is still to be handed over."
    )


class Release(Wire):
    """Give this attempt back: end its trainer, hand over its checkpoint. Answered by released.

    What is finished already is handed over as it is.
    """

    type: Literal["release"] = "release"
    id: Id
    job_id: JobId
    attempt: Attempt
    why: Why = Why(code="drained")


class Noted(Wire):
    """The acknowledgement of finished, failed or released: it is in the ledger, or void."""

    type: Literal["noted"] = "noted"
    verdict: Literal["recorded", "stored", "superseded"] = Field(
        description="stored: its artifact is in the store; superseded: drop it."
    )
    state: JobStateName | None = Field(default=None, description="The job's present state.")
    job_id: JobId
    attempt: Attempt
    id: Id
    report_id: Id


class Rebirth(Wire):
    """Publish the birth again: status, capability, heartbeat, owed reports."""

    type: Literal["rebirth"] = "rebirth"
    id: Id


class Rules(Wire):
    """When the manifest keeps jobs off this host. Answered by a heartbeat that bears `digest`.

    They hold until the next ones, in addition to the owner's own.
    """

    type: Literal["rules"] = "rules"
    id: Id
    digest: Annotated[str, Field(max_length=64)] = Field(
        default="", description="Names this set of rules; empty: there are none."
    )
    rules: HostRules = HostRules()


AgentRequest = Annotated[
    Assign | Lease | Cancel | Release | Noted | Rebirth | Rules, Field(discriminator="type")
]


# Agent to coordinator


# How long its trainer ran: a duration, since the clocks of hosts are often wrong.
RanS = Annotated[
    float | None,
    Field(description="Seconds that the trainer ran, by the agent's monotonic clock, if it did."),
]


TookS = Annotated[float, Field(ge=0, le=1e9)]
LEAD: Final = ("fetched_bytes", "fetch_s", "prepare_s")  # of `Started`


class _Report(Wire):
    type: str  # stands here for the order, see `encode`; each report says which
    job_id: JobId
    attempt: Attempt
    id: Id
    session: Id
    instance: Id
    receipt: Receipt = ""


class Accepted(_Report):
    """The assignment is taken; the trainer is about to start."""

    type: Literal["accepted"] = "accepted"
    request_id: Id


class Refused(_Report):
    """The assignment is not taken, and why."""

    type: Literal["refused"] = "refused"
    request_id: Id
    reasons: Annotated[tuple[Objection, ...], Field(min_length=1, max_length=32)]


class Started(_Report):
    """The trainer's process runs."""

    type: Literal["started"] = "started"
    slot: int = Field(ge=0, le=63)
    pid: int = Field(
        ge=0, description="The trainer's; without a nursery (macOS) that of the keeper above it."
    )
    resumes: bool = Field(default=False, description="It goes on from a checkpoint.")
    fetched_bytes: Bytes = omitted(0, "What was fetched for it before.")
    fetch_s: TookS = omitted(0.0, "How long that took.")
    prepare_s: TookS = omitted(0.0, "How long its packages took.")

    def lead(self) -> dict[str, float]:
        """Return what it took to get ready, without what took nothing."""
        told = {name: getattr(self, name) for name in LEAD}
        return {name: figure for name, figure in told.items() if figure}


class Finished(_Report):
    """Training is done and its bundle is on the agent's disk. Repeated until noted.

    It also announces the artifact: a coordinator that lacks it answers with a grant.
    """

    type: Literal["finished"] = "finished"
    artifact_id: ArtifactId
    size_bytes: Bytes
    chunk_bytes: ChunkBytes = CHUNK_BYTES
    metrics: Metrics = {}
    ran_s: RanS = None
    bundle: Annotated[str, Field(max_length=4 * (MAX_SMALL_BYTES // 3 + 1))] = Field(
        default="", description="The artifact itself, in base64, where it is small."
    )


class Failed(_Report):
    """The trainer failed. Repeated until noted."""

    type: Literal["failed"] = "failed"
    error: Text
    kind: Word | None = Field(
        default=None,
        description="The trainer's `kind`, or the agent's: timeout, stalled, killed, signal, "
        "silent, not_started, unbundled, damaged.",
    )
    exit_code: int | None = None
    transient: bool = Field(
        default=True, description="Another attempt may go well; false: it cannot."
    )
    ran_s: RanS = None


class Released(_Report):
    """The agent gives the job back unfinished, through no fault of the job. Until noted.

    With an artifact, that is a checkpoint, announced and handed over as a result is.
    """

    type: Literal["released"] = "released"
    why: Why = Field(
        description="leaving, interrupted, lease, data, what a heartbeat's `refuses` has, or what "
        "the request said."
    )
    artifact_id: ArtifactId | None = None
    size_bytes: Bytes = 0
    chunk_bytes: ChunkBytes = CHUNK_BYTES
    ran_s: RanS = None
    interrupted: bool = Field(
        default=False,
        description="The agent was killed while it ran; this is said by its next process.",
    )


class Stopped(_Report):
    """The answer to cancel: this attempt does not run here (any more)."""

    type: Literal["stopped"] = "stopped"
    request_id: Id
    ran_s: RanS = None


AgentResponse = Annotated[
    Accepted | Refused | Started | Finished | Failed | Released | Stopped,
    Field(discriminator="type"),
]
AgentResponses = Annotated[tuple[AgentResponse, ...], Field(min_length=1)]


AGENT_REQUEST: Final[TypeAdapter[AgentRequest]] = TypeAdapter(AgentRequest, config=DEFERRED)
AGENT_RESPONSE: Final[TypeAdapter[AgentResponse]] = TypeAdapter(AgentResponse, config=DEFERRED)
AGENT_RESPONSES: Final[TypeAdapter[AgentResponses]] = TypeAdapter(AgentResponses, config=DEFERRED)


def decode_reports(payload: bytes) -> tuple[AgentResponse, ...]:
    """Return the reports in a message: one, or a list of some. Raises `BadMessage`."""
    if payload.startswith(b"["):
        return decode(AGENT_RESPONSES, payload)
    return (decode(AGENT_RESPONSE, payload),)
