"""What Home Assistant is shown and has done. The templates of its entities name these keys.

The messages of discovery are Home Assistant's own format, and not the fleet's.
"""

from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter

from broker.protocol.messages.values import DEFERRED, JobId, Piece, Share, Wire

Shown = Annotated[str, Field(max_length=250)]  # Home Assistant takes 255 characters as a state
Percent = Annotated[float, Field(ge=0, le=100)]

HostState = Literal[
    "idle",
    "working",
    "drained",
    "quarantine",
    "snoozed",
    "refusing",
    "no data",
    "revoked",
    "starting",
    "twins",
    "left",
    "asleep",
    "cut-off",
    "silent",
    "unknown",
]
FleetState = Literal["training", "waiting", "paused", "idle"]
EventType = Literal["job_completed", "job_failed", "plan_done"]


class HomeJob(Piece):
    """A job that a host holds."""

    name: Shown
    job_id: JobId
    phase: str
    progress: Share | None = None


class HomeHost(Wire):
    """One host. What is not known is null, which Home Assistant shows as unknown."""

    state: HostState
    online: bool
    accepts: bool = Field(description="It is given jobs: nobody has drained it.")
    problem: bool
    problems: tuple[Shown, ...] = ()
    job: Shown = Field(description="The names of the jobs that it holds, or `idle`.")
    jobs: tuple[HomeJob, ...] = ()
    progress: Annotated[int, Field(ge=0, le=100)] = 0
    eta: str | None = Field(default=None, description="RFC 3339; when its last job will be done.")
    time_left_min: float | None = Field(
        default=None, description="Until then; 0 when it is idle, null when nobody knows."
    )
    cpu: Percent | None = None
    ram: Percent | None = None
    ram_free_gib: float | None = None
    gpu: Percent | None = None
    vram: Percent | None = None
    vram_free_gib: float | None = None
    power_w: float | None = None
    energy_kwh: float | None = Field(
        default=None, description="What its GPUs have used; never less than before."
    )


class HomeFleet(Wire):
    """The fleet as a whole."""

    state: FleetState
    problem: bool
    problems: tuple[Shown, ...] = ()
    jobs: dict[str, int] = Field(description="How many are in each of the six states.")
    progress: Annotated[int, Field(ge=0, le=100)] = Field(description="Of the plan, by jobs.")
    hosts_online: int
    hosts: int


class HomeEvent(Wire):
    """Something that an automation may wait for. Of a job, or of the whole plan."""

    event_type: EventType
    job: Shown | None = None
    host: Shown | None = None
    error: Shown | None = None
    jobs: dict[str, int] | None = Field(default=None, description="Of a plan: how they ended.")


class HomeCommand(Wire):
    """A switch was thrown, or a button pressed.

    `drain`, `resume`, `release` (drain, and what it holds goes back to the queue) and `cancel`
    (what it holds) are a host's; `requeue` (all that failed) and `reload` the coordinator's.
    """

    type: Literal["drain", "resume", "release", "cancel", "requeue", "reload"]


HOME_STATE: Final[TypeAdapter[HomeHost | HomeFleet]] = TypeAdapter(
    HomeHost | HomeFleet, config=DEFERRED
)
HOME_EVENT: Final = TypeAdapter(HomeEvent)
HOME_COMMAND: Final = TypeAdapter(HomeCommand)
