"""What operators ask, and the answer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from broker.messages.values import Id, JobStateName, Line, Piece, Seq, Text, Wire, finite


class Ask(Wire):
    """Base of all requests of operators and observers."""

    id: Id
    expires_at: float | None = Field(
        default=None, description="Seconds since the epoch; not carried out afterwards."
    )


class Auth(Piece):
    """A signature by the operator key; broker/auth.py says of what."""

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


class AskWorkers(Ask):
    """All hosts, a page at a time."""

    type: Literal["workers"] = "workers"
    brief: bool = Field(default=False, description="Without capability and heartbeat.")
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


class AskTrainers(Ask):
    """Hyperparameter schemas of the trainers that the hosts announce."""

    type: Literal["trainers"] = "trainers"


class AskFetch(Ask):
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
    data: Annotated[JsonValue, AfterValidator(finite)] = None
