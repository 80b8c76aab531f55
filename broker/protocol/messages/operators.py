"""What operators ask, and the answer."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, JsonValue, TypeAdapter

from broker.protocol.messages.offers import Offer, PushKind
from broker.protocol.messages.values import (
    CHUNK_BYTES,
    DEFERRED,
    ChunkBytes,
    Id,
    JobId,
    JobStateName,
    Line,
    Piece,
    Seq,
    Short,
    Wire,
    finite,
)

MAX_JOBS: Final = 64  # of one command: as many as an answer holds, whatever is told of each
MAX_MODELS: Final = 64
CURVES_AT_ONCE: Final = 20  # in one answer, which bears 256 KiB


class Ask(Wire):
    """Base of all requests of operators and observers."""

    id: Id
    expires_at: float | None = Field(
        default=None,
        description="Seconds since the epoch; carried out until a minute later (clocks differ).",
    )


class Auth(Piece):
    """A signature by the operator key; broker/protocol/signing.py says of what."""

    at: float = Field(description="When it was signed, in seconds since the epoch.")
    mac: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="HMAC-SHA256.")]


class Command(Ask):
    """Base of the requests that change something: operators alone may make them."""

    type: str
    auth: Auth | None = Field(
        default=None, description="Needed where the coordinator has an operator key."
    )


class AskStatus(Ask):
    """Counts, the coordinator's and the broker's state."""

    type: Literal["status"] = "status"


class AskList(Ask):
    """Job rows, a page at a time, in claim order."""

    type: Literal["list"] = "list"
    states: tuple[JobStateName, ...] = ()
    models: Annotated[tuple[Short, ...], Field(max_length=MAX_MODELS)] = Field(
        default=(), description="None: of any model."
    )
    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=200, ge=1, le=200)


class AskShow(Ask):
    """One job with its spec and events."""

    type: Literal["show"] = "show"
    job: Line


class AskWhy(Ask):
    """Why a job is not running: every reason, host by host."""

    type: Literal["why"] = "why"
    job: Line


class AskLogs(Ask):
    """The last lines of a job's output."""

    type: Literal["logs"] = "logs"
    job: Line
    lines: int = Field(default=200, ge=1, le=5000)


class AskCurves(Ask):
    """The losses of jobs by epoch, as far as they were told."""

    type: Literal["curves"] = "curves"
    jobs: Annotated[tuple[JobId, ...], Field(max_length=CURVES_AT_ONCE)]


class AskWorkers(Ask):
    """All hosts, a page at a time; sets of trainers that several have are in a page once."""

    type: Literal["workers"] = "workers"
    brief: bool = Field(default=False, description="Without capability and heartbeat.")
    absent: bool = Field(
        default=False, description="With `others`, which the plan or the ledger names and no more."
    )
    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=200, ge=1, le=500)


class AskCancel(Command):
    """Cancel a job in any state but the final ones."""

    type: Literal["cancel"] = "cancel"
    job: Line


class AskRequeue(Command):
    """Put a job back to pending from any state but pending."""

    type: Literal["requeue"] = "requeue"
    job: Line


class AskEach(Command):
    """Cancel or requeue each of several jobs; what is refused of one stops none of the others."""

    type: Literal["each"] = "each"
    action: Literal["cancel", "requeue"]
    jobs: Annotated[tuple[Short, ...], Field(min_length=1, max_length=MAX_JOBS)]
    states: tuple[JobStateName, ...] = Field(
        default=(), description="A job that is in none of these by then is left as it is."
    )


class AskDrain(Command):
    """Give a host no new jobs; what it holds is finished, or with `now` given back at once."""

    type: Literal["drain"] = "drain"
    host: Line
    now: bool = False


class AskSnooze(Command):
    """Give a host no new jobs for a while; what it holds is treated as by a drain."""

    type: Literal["snooze"] = "snooze"
    host: Line
    for_s: float = Field(ge=0, le=1e7, description="0: the snooze ends, and nothing else.")
    now: bool = False


class AskResume(Command):
    """Give a host jobs again: lifts a drain, a snooze and a quarantine."""

    type: Literal["resume"] = "resume"
    host: Line


class AskPause(Command):
    """Give out no new jobs at all; `off`: give them out again. What runs goes on."""

    type: Literal["pause"] = "pause"
    off: bool = False


class AskForget(Command):
    """Forget a host that is gone for good."""

    type: Literal["forget"] = "forget"
    host: Line


class AskRun(Command):
    """Add one job beside the manifest: `job` is what a [[jobs]] table would hold."""

    type: Literal["run"] = "run"
    job: Annotated[dict[str, JsonValue], Field(max_length=64), AfterValidator(finite)]


class AskReload(Command):
    """Read the coordinator's manifest again."""

    type: Literal["reload"] = "reload"


class AskIdentity(Command):
    """Say what was done with the CA, for the record; whoever was revoked is given no jobs.

    The coordinator takes an id once, whoever tells of it.
    """

    type: Literal["identity"] = "identity"
    action: Literal["init", "enroll", "revoke"]
    name: Line = Field(description="Whose certificate: a host's name, or a person's.")
    what: Line = ""
    who: Line = Field(default="", description="Who did it, where that is not who tells of it.")
    made_at: float = Field(ge=0, le=1e11, description="When, in seconds since the epoch.")


class AskEvents(Ask):
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


class AskPlan(Ask):
    """The running plan, a page at a time in claim order: all that a prediction needs of the jobs.

    Each has its spec, how long it has waited or run, and how far it is.
    """

    type: Literal["plan"] = "plan"
    states: tuple[JobStateName, ...] = ()
    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=500, ge=1, le=1000)


class AskAttempts(Ask):
    """Attempts that have ended, newest first, a page at a time: how, where, after how long.

    `before` is where the last page ended, as its answer said in `next`; `after` is where the newest
    one began that is known already, as an answer said in `newest`.
    """

    type: Literal["attempts"] = "attempts"
    since: float | None = Field(
        default=None, ge=0, le=1e11, description="Seconds since the epoch; none: all of them."
    )
    before: Seq | None = Field(default=None, description="In the table of events; none: its end.")
    after: Seq = Field(default=0, description="Likewise; what is not newer is left out.")
    ends: tuple[Literal["completed", "failed", "lost", "released", "cancelled"], ...] = ()
    limit: int = Field(default=1000, ge=1, le=1000)


class AskTrainers(Ask):
    """Hyperparameter schemas of the trainers that the hosts announce."""

    type: Literal["trainers"] = "trainers"


class AskFetch(Ask):
    """Which artifact a job has, how large it is; it then flows by download grants.

    Of an `attempt`: what that has brought, also when a requeue has set it aside.
    """

    type: Literal["fetch"] = "fetch"
    job: Line
    attempt: int | None = Field(default=None, ge=1)


class AskPush(Command):
    """Take a program or a dataset in. Its first blob that is not there flows by push grants.

    It is known once all of them are there and it is asked for again.
    """

    type: Literal["push"] = "push"
    offer: Offer
    chunk_bytes: ChunkBytes = CHUNK_BYTES

    @property
    def kind(self) -> PushKind:
        """Which of the two."""
        return self.offer.kind


class AskPushed(Ask):
    """The programs or the datasets that the fleet has, oldest first."""

    type: Literal["pushed"] = "pushed"
    kind: PushKind


class AskRemove(Command):
    """Remove a program or a dataset that no job waits for or runs with."""

    type: Literal["remove"] = "remove"
    kind: PushKind
    name: Line = Field(description="NAME@DIGEST, or the start of a digest.")


class AskLayout(Ask):
    """The layout of a dataset; it then flows by download grants."""

    type: Literal["layout"] = "layout"
    name: Line = Field(description="As in `AskRemove`.")


OperatorRequest = Annotated[
    AskStatus
    | AskList
    | AskShow
    | AskWhy
    | AskLogs
    | AskCurves
    | AskWorkers
    | AskCancel
    | AskRequeue
    | AskEach
    | AskDrain
    | AskSnooze
    | AskResume
    | AskPause
    | AskRun
    | AskForget
    | AskReload
    | AskIdentity
    | AskEvents
    | AskPlan
    | AskAttempts
    | AskTrainers
    | AskFetch
    | AskPush
    | AskPushed
    | AskRemove
    | AskLayout,
    Field(discriminator="type"),
]


class OperatorResponse(Wire):
    """The answer to one operator request. `data` is what the request's type asks for."""

    id: Id
    ok: bool
    code: Literal["ok", "refused", "not_found", "bad_request", "expired"] = "ok"
    why: Annotated[dict[str, JsonValue], AfterValidator(finite)] = Field(
        default={}, description="Why it was not done: a `code` with figures; `text` is foreign."
    )
    data: Annotated[JsonValue, AfterValidator(finite)] = None
    auth: Auth | None = Field(
        default=None, description="Of the answer to a command, where there is an operator key."
    )


OPERATOR_REQUEST: Final[TypeAdapter[OperatorRequest]] = TypeAdapter(
    OperatorRequest, config=DEFERRED
)
OPERATOR_RESPONSE: Final = TypeAdapter(OperatorResponse)
