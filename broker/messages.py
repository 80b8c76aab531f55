"""Every payload on the wire but the raw ones (log lines and chunks), as pydantic models.

Going out, a message bears exactly the fields below. Coming in, unknown fields are tolerated, so
that an old agent and a new coordinator work together; everything else that does not fit raises
`BadMessage`. Sizes are bounded before anything is parsed.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
)

from broker.errors import BadMessage
from broker.topics import HEX_PATTERN, HOST_PATTERN

T = TypeVar("T")

VERSION: Final = 1
MAX_PAYLOAD_BYTES: Final = 256 * 1024
MAX_CHUNK_BYTES: Final = 1024 * 1024

HostName = Annotated[str, Field(pattern=rf"^{HOST_PATTERN}$")]
JobId = Annotated[str, Field(pattern=rf"^{HEX_PATTERN}$")]
ArtifactId = Annotated[str, Field(pattern=rf"^{HEX_PATTERN}$")]
Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Line = Annotated[str, Field(max_length=2000)]
Text = Annotated[str, Field(max_length=16_000)]
Pem = Annotated[str, Field(max_length=8192)]
Bytes = Annotated[int, Field(ge=0, le=1 << 62)]
Attempt = Annotated[int, Field(ge=1, le=1 << 31)]
Seq = Annotated[int, Field(ge=0, le=1 << 62)]
Share = Annotated[float, Field(ge=0, le=1)]


def _finite(value: T) -> T:
    # `allow_inf_nan` does not reach into a JsonValue that is parsed from JSON.
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        raise ValueError("must hold finite numbers only") from None
    return value


Metrics = Annotated[dict[str, JsonValue], Field(max_length=64), AfterValidator(_finite)]
Hyper = Annotated[dict[str, JsonValue], Field(max_length=64), AfterValidator(_finite)]
JobStateName = Literal["pending", "claimed", "running", "completed", "failed", "cancelled"]
Mode = Literal["realistic", "oracle"]
SplitRecipe = Literal["host", "sample", "time"]


class Piece(BaseModel):
    """Base of what stands inside a payload: immutable, tolerant of fields it does not know."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Wire(Piece):
    """Base of every payload: it has a version as well."""

    v: int = Field(default=VERSION, ge=1, description="Version of the message format.")


class Status(Wire):
    """Presence of a host or of the coordinator; its will bears the session that it belongs to."""

    state: Literal["online", "offline"]
    reason: Literal["birth", "goodbye", "lost"] = "birth"
    session: Id = Field(description="New at every connect; a will speaks for its session only.")
    instance: Id = Field(description="New at every start of the process.")
    boot_id: Id = Field(description="New at every boot of the machine.")


class Gpu(Piece):
    """One CUDA device."""

    index: int = Field(ge=0, le=1023)
    name: str = Field(default="", max_length=200)
    uuid: str = Field(default="", max_length=80)
    vram_total_bytes: Bytes | None = None
    vram_free_bytes: Bytes | None = Field(default=None, description="Others' processes counted.")
    use_percent: float | None = Field(default=None, ge=0, le=100)
    power_w: float | None = Field(default=None, ge=0, le=100_000)


class TrainerInfo(Piece):
    """A trainer that is installed on the host."""

    hyper_schema: Annotated[dict[str, JsonValue], AfterValidator(_finite)] = Field(
        description="JSON Schema of its hyperparameters.",
    )


class Capability(Wire):
    """What a host is; retained."""

    session: Id
    instance: Id
    description: Line = ""
    os: Line
    arch: Line
    python: Line
    cpu: Line = ""
    physical_cores: int = Field(ge=1, le=65_536)
    ram_total_bytes: Bytes
    ram_available_bytes: Bytes
    gpus: Annotated[tuple[Gpu, ...], Field(max_length=64)] = ()
    gpu_problem: Line = Field(default="", description="Why CUDA could not be probed, if so.")
    torch: str | None = Field(default=None, max_length=80)
    xgboost: str | None = Field(default=None, max_length=80)
    trainers: Annotated[dict[Word, TrainerInfo], Field(max_length=64)] = {}
    trainers_commit: str | None = Field(default=None, max_length=80)
    data_id: str | None = Field(
        default=None, max_length=80, description="Fingerprint of the prepared data; none without."
    )
    slots: int = Field(default=1, ge=1, le=64)
    battery: bool = Field(
        default=False, description="It runs on a battery at times, and may sleep."
    )
    agent_version: str = Field(default="", max_length=80)
    certificate_expires_at: str | None = Field(
        default=None, max_length=40, description="When its certificate ends; none without TLS."
    )


Phase = Literal["fetching", "starting", "running", "stopping", "bundling", "reporting", "uploading"]


class HeldJob(Piece):
    """A job that the agent holds: it runs, or its result has not been handed over yet."""

    job_id: JobId
    attempt: Attempt
    phase: Phase
    progress: Share | None = None


class Heartbeat(Wire):
    """What a host is doing now. The list of held jobs is complete: what is absent is not held."""

    session: Id
    instance: Id
    seq: int = Field(ge=0)
    ram_available_bytes: Bytes
    cpu_percent: float | None = Field(default=None, ge=0)
    load_1m: float | None = Field(default=None, ge=0)
    gpus: Annotated[tuple[Gpu, ...], Field(max_length=64)] = ()
    jobs: Annotated[tuple[HeldJob, ...], Field(max_length=256)] = ()
    refuses: Line = Field(default="", description="Why it takes no jobs now; empty: it takes some.")
    dropped: int = Field(default=0, ge=0, description="Messages dropped as garbage so far.")
    suspended_s: float | None = Field(
        default=None, ge=0, description="For how long the machine has slept since it booted."
    )


class Progress(Wire):
    """Progress of one running job; retained while it runs."""

    attempt: Attempt
    phase: Annotated[str, Field(max_length=40)] = "train"
    epoch: int | None = Field(default=None, ge=0)
    epochs: int | None = Field(default=None, ge=0)
    train_loss: float | None = None
    val_loss: float | None = None
    metrics: Metrics = {}
    eta_s: float | None = Field(default=None, ge=0)


# Coordinator to agent


class Needs(Piece):
    """What a job needs of its host; judged again by the agent when it starts the job."""

    require_cuda: bool = False
    prefer_cuda: bool = False
    min_vram_gib: float | None = Field(default=None, ge=0)
    min_ram_gib: float | None = Field(default=None, ge=0)
    min_cores: int | None = Field(default=None, ge=1)


class Checkpoint(Piece):
    """Where an earlier attempt left off: an artifact that the coordinator has."""

    artifact_id: ArtifactId
    size_bytes: Annotated[int, Field(ge=1, le=1 << 50)]
    chunk_bytes: Annotated[int, Field(ge=1024, le=MAX_CHUNK_BYTES)]
    attempt: Attempt = Field(description="The attempt that has left it.")


class Assign(Wire):
    """Carry out this attempt of this job. Answered by accepted or refused.

    It is for one process of the agent: one that was started since, or another agent that uses the
    host's name, takes no notice, so that an attempt never runs twice.
    """

    type: Literal["assign"] = "assign"
    id: Id
    job_id: JobId
    attempt: Attempt
    instance: Id
    name: Line
    model: Word
    mode: Mode
    hyper: Hyper = {}
    split_recipe: SplitRecipe = "host"
    train_hosts: Annotated[tuple[Line, ...], Field(max_length=1000)] = ()
    seed: int = Field(default=0, ge=0, le=2**32 - 1)
    n_resamples: int = Field(default=1000, ge=0, le=1_000_000)
    needs: Needs = Needs()
    use_cuda: bool = Field(default=False, description="A CUDA device goes with the slot.")
    lease_s: float = Field(gt=0)
    timeout_s: float | None = Field(
        default=None, gt=0, description="The trainer is ended when it has run for so long."
    )
    stall_timeout_s: float | None = Field(
        default=None, gt=0, description="The trainer is ended when it has said nothing for so long."
    )
    on_lost: Literal["keep", "stop"] = "keep"
    checkpoint: Checkpoint | None = Field(
        default=None, description="To go on from, unless the host has a newer one of its own."
    )


class Cancel(Wire):
    """Stop this attempt and throw its work away. Answered by stopped, held or not."""

    type: Literal["cancel"] = "cancel"
    id: Id
    job_id: JobId
    attempt: Attempt
    why: Line = ""
    keep_finished: bool = Field(
        default=False, description="A result that is there already is still to be handed over."
    )


class Noted(Wire):
    """The answer to started, finished, failed, released: it is in the ledger, or void."""

    type: Literal["noted"] = "noted"
    id: Id
    report_id: Id
    job_id: JobId
    attempt: Attempt
    verdict: Literal["recorded", "wanted", "stored", "superseded"] = Field(
        description="wanted: offer the bundle; stored: it is here already; superseded: drop it."
    )
    state: JobStateName | None = Field(default=None, description="The job's present state.")


class Rebirth(Wire):
    """Publish the birth again: status, capability, heartbeat, owed reports."""

    type: Literal["rebirth"] = "rebirth"
    id: Id


AgentRequest = Annotated[Assign | Cancel | Noted | Rebirth, Field(discriminator="type")]


# Agent to coordinator


class _Report(Wire):
    id: Id
    session: Id
    instance: Id
    job_id: JobId
    attempt: Attempt


class Accepted(_Report):
    """The assignment is taken; the trainer is about to start."""

    type: Literal["accepted"] = "accepted"
    request_id: Id


class Refused(_Report):
    """The assignment is not taken, and why, with figures."""

    type: Literal["refused"] = "refused"
    request_id: Id
    reasons: Annotated[tuple[Line, ...], Field(min_length=1, max_length=32)]


class Started(_Report):
    """The trainer's process runs."""

    type: Literal["started"] = "started"
    slot: int = Field(ge=0, le=63)
    pid: int = Field(ge=0)


class Finished(_Report):
    """Training is done and its bundle is on the agent's disk. Repeated until noted."""

    type: Literal["finished"] = "finished"
    artifact_id: ArtifactId
    size_bytes: Bytes
    metrics: Metrics = {}


class Failed(_Report):
    """The trainer failed. Repeated until noted."""

    type: Literal["failed"] = "failed"
    error: Text
    exit_code: int | None = None
    transient: bool = Field(
        default=True, description="Another attempt may go well; false: it cannot."
    )


class Released(_Report):
    """The agent gives the job back unfinished, through no fault of the job. Until noted.

    With an artifact, that is a checkpoint, handed over as a result is.
    """

    type: Literal["released"] = "released"
    reason: Line
    artifact_id: ArtifactId | None = None
    size_bytes: Bytes = 0


class Stopped(_Report):
    """The answer to cancel: this attempt does not run here (any more)."""

    type: Literal["stopped"] = "stopped"
    request_id: Id


AgentResponse = Annotated[
    Accepted | Refused | Started | Finished | Failed | Released | Stopped,
    Field(discriminator="type"),
]


# The chunk stream


class CertificateRequest(Wire):
    """A host asks for its next certificate, for the key that it has."""

    id: Id
    request: Pem = Field(description="PKCS #10; nothing but its key counts.")


class CertificateResponse(Wire):
    """The certificate, or why there is none."""

    id: Id = Field(description="The request's.")
    certificate: Pem | None = None
    error: Line = ""


class Offer(Wire):
    """An artifact that the sender has; the receiver answers with a grant."""

    job_id: JobId
    attempt: Attempt
    instance: Id
    size_bytes: Annotated[int, Field(ge=1, le=1 << 50)]
    chunk_bytes: Annotated[int, Field(ge=1024, le=MAX_CHUNK_BYTES)]


class Grant(Wire):
    """What the receiver still misses, as half-open ranges of chunk indexes, and its window.

    The list of ranges is cut short at a limit; nothing is said about indexes at or past `horizon`.
    """

    state: Literal["receiving"] = "receiving"
    missing: Annotated[tuple[tuple[int, int], ...], Field(max_length=256)]
    horizon: int = Field(ge=0)
    window_chunks: int = Field(ge=1, le=4096)


class Stored(Wire):
    """The artifact is in the store, hashed and fsynced; the sender may forget it."""

    state: Literal["stored"] = "stored"


class Rejected(Wire):
    """The artifact is not taken. `final`: drop it; otherwise report the job finished anew."""

    state: Literal["rejected"] = "rejected"
    reason: Line
    final: bool


GrantMessage = Annotated[Grant | Stored | Rejected, Field(discriminator="state")]


# Dashboards


class JobRow(Wire):
    """One job as people and scripts see it; retained at its topic. Times are RFC 3339 in UTC."""

    job_id: JobId
    name: Line
    model: str
    mode: str
    state: JobStateName
    priority: int
    attempt: int
    host: str | None
    error: str | None
    artifact_id: ArtifactId | None
    metrics: Metrics | None
    created_at: str
    started_at: str | None
    finished_at: str | None
    in_plan: bool = True


class Summary(Wire):
    """Counts by state; retained."""

    jobs: dict[str, int]
    hosts: dict[str, int]
    dropped: dict[str, int] = Field(default={}, description="Garbage dropped, by kind of topic.")


# Operator and coordinator


class _Ask(Wire):
    id: Id
    expires_at: float | None = Field(
        default=None, description="Seconds since the epoch; not carried out afterwards."
    )


class Auth(Piece):
    """A signature by the operator key; broker/auth.py says of what."""

    at: float = Field(description="When it was signed, in seconds since the epoch.")
    mac: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="HMAC-SHA256.")]


class Command(_Ask):
    """Base of the requests that change something: operators alone may make them."""

    type: str
    auth: Auth | None = Field(
        default=None, description="Needed where the coordinator has an operator key."
    )


class AskStatus(_Ask):
    """Counts, the coordinator's and the broker's state."""

    type: Literal["status"] = "status"


class AskList(_Ask):
    """Job rows, a page at a time, in claim order."""

    type: Literal["list"] = "list"
    states: tuple[JobStateName, ...] = ()
    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=200, ge=1, le=200)


class AskShow(_Ask):
    """One job with its spec and events."""

    type: Literal["show"] = "show"
    job: Line


class AskWhy(_Ask):
    """Why a job is not running: every reason, host by host."""

    type: Literal["why"] = "why"
    job: Line


class AskLogs(_Ask):
    """The last lines of a job's output."""

    type: Literal["logs"] = "logs"
    job: Line
    lines: int = Field(default=200, ge=1, le=5000)


class AskWorkers(_Ask):
    """All hosts, a page at a time."""

    type: Literal["workers"] = "workers"
    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=20, ge=1, le=50)


class AskCancel(Command):
    """Cancel a job in any state but the final ones."""

    type: Literal["cancel"] = "cancel"
    job: Line


class AskRequeue(Command):
    """Put a job back to pending from any state but pending."""

    type: Literal["requeue"] = "requeue"
    job: Line


class AskDrain(Command):
    """Give a host no new jobs; what it holds goes on."""

    type: Literal["drain"] = "drain"
    host: Line


class AskResume(Command):
    """Give a host jobs again: lifts a drain and a quarantine."""

    type: Literal["resume"] = "resume"
    host: Line


class AskReload(Command):
    """Read the coordinator's manifest again."""

    type: Literal["reload"] = "reload"


class AskEvents(_Ask):
    """What has happened, oldest first, a page at a time: moves of jobs, and what operators did.

    `after` is where the last page ended, as its answer said in `next`; an answer without `more` is
    the last one for now.
    """

    type: Literal["events"] = "events"
    since: float | None = Field(
        default=None, ge=0, le=1e11, description="Seconds since the epoch; none: from the start."
    )
    job: Line | None = None
    host: Line | None = None
    who: Line | None = Field(default=None, description="`operator:alice`, or one of its halves.")
    after: tuple[Seq, Seq] = Field(default=(0, 0), description="In the two tables of events.")
    limit: int = Field(default=200, ge=1, le=200)


class AskTrainers(_Ask):
    """Hyperparameter schemas of the trainers that the hosts announce."""

    type: Literal["trainers"] = "trainers"


class AskFetch(_Ask):
    """Which artifact a job has, how large it is; it then flows by download grants."""

    type: Literal["fetch"] = "fetch"
    job: Line


OperatorRequest = Annotated[
    AskStatus
    | AskList
    | AskShow
    | AskWhy
    | AskLogs
    | AskWorkers
    | AskCancel
    | AskRequeue
    | AskDrain
    | AskResume
    | AskReload
    | AskEvents
    | AskTrainers
    | AskFetch,
    Field(discriminator="type"),
]


class OperatorResponse(Wire):
    """The answer to one operator request. `data` is what the request's type asks for."""

    id: Id
    ok: bool
    code: Literal["ok", "refused", "not_found", "bad_request", "expired"] = "ok"
    message: Text = ""
    data: Annotated[JsonValue, AfterValidator(_finite)] = None


# Encoding and decoding

STATUS: Final = TypeAdapter(Status)
CAPABILITY: Final = TypeAdapter(Capability)
HEARTBEAT: Final = TypeAdapter(Heartbeat)
PROGRESS: Final = TypeAdapter(Progress)
AGENT_REQUEST: Final[TypeAdapter[AgentRequest]] = TypeAdapter(AgentRequest)
AGENT_RESPONSE: Final[TypeAdapter[AgentResponse]] = TypeAdapter(AgentResponse)
OFFER: Final = TypeAdapter(Offer)
CERTIFICATE_REQUEST: Final = TypeAdapter(CertificateRequest)
CERTIFICATE_RESPONSE: Final = TypeAdapter(CertificateResponse)
GRANT: Final[TypeAdapter[GrantMessage]] = TypeAdapter(GrantMessage)
JOB_ROW: Final = TypeAdapter(JobRow)
SUMMARY: Final = TypeAdapter(Summary)
OPERATOR_REQUEST: Final[TypeAdapter[OperatorRequest]] = TypeAdapter(OperatorRequest)
OPERATOR_RESPONSE: Final = TypeAdapter(OperatorResponse)


# What a person looks for in a line of a trace.
_FIRST: Final = ("v", "type", "name", "state", "job_id", "attempt")
_JSON: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def encode(message: Wire) -> bytes:
    """Return the JSON of a message; what it is comes first, for whoever reads a trace."""
    if _is_in_order(type(message)):
        return message.__pydantic_serializer__.to_json(message)
    fields = message.model_dump(mode="json")
    head = {key: fields[key] for key in _FIRST if key in fields}
    return _JSON.encode(head | fields).encode()


@cache
def _is_in_order(kind: type[Wire]) -> bool:
    """Whether the fields stand in the order of a trace, as those of the frequent messages do."""
    fields = list(kind.model_fields)
    first = [name for name in _FIRST if name in fields]
    return fields[: len(first)] == first


def decode(adapter: TypeAdapter[T], payload: bytes, limit_bytes: int = MAX_PAYLOAD_BYTES) -> T:
    """Return the message in `payload`.

    Raises `BadMessage`, with a line that bears none of the payload's content, when it is larger
    than `limit_bytes`, is not JSON, or does not fit.
    """
    if len(payload) > limit_bytes:
        raise BadMessage(f"payload of {len(payload)} bytes; at most {limit_bytes} are taken")
    try:
        return adapter.validate_json(payload)
    except ValidationError as error:
        raise BadMessage(_fault(error)) from None
    except (RecursionError, ValueError) as error:
        raise BadMessage(f"not usable JSON: {type(error).__name__}") from None


def _field_names() -> frozenset[str]:
    names: set[str] = set()
    models: list[type[Piece]] = [Piece]
    while models:
        model = models.pop()
        names |= model.model_fields.keys()
        models += model.__subclasses__()
    return frozenset(names)


_FIELD_NAMES: Final = _field_names()


def _fault(error: ValidationError) -> str:
    """Say where the first fault is, by our own words alone: keys of a mapping are content, too."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"] if part in _FIELD_NAMES) or "payload"
    if first["type"] == "union_tag_invalid":  # pydantic's message would repeat the tag
        return f"{where}: must be one of {first['ctx']['expected_tags']}"
    return f"{where}: {first['msg']}"
