"""The settings that the core decides by, and what it knows of its own process. Reads no file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from broker.protocol.quiet_hours import HoursText

LOOK_S = 5.0  # between looks at what the owner wants
Seconds = Annotated[float, Field(gt=0, le=1e7)]


class CorePart(BaseModel):
    """The part of `[agent]` that the core is given."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    heartbeat_s: Annotated[float, Field(ge=0.2, le=3600)] = Field(
        default=30.0, description="Time between heartbeats."
    )
    chunk_bytes: int = Field(
        default=512 * 1024, ge=1024, le=1024 * 1024,
        description="Most bytes of an artifact in one message.",
    )  # fmt: skip
    stop_grace_s: Seconds = Field(
        default=10.0, description="Time a trainer has between SIGTERM and SIGKILL."
    )
    quiet_hours: tuple[HoursText, ...] = Field(
        default=(), max_length=32, description="When this host takes no jobs, by its own clock."
    )
    idle_only: bool = Field(
        default=False, description="Take jobs only while nobody else uses this host."
    )
    idle_after_s: Seconds = Field(
        default=300.0, description="Nobody uses it who has not touched it for so long."
    )
    busy_percent: Annotated[float, Field(gt=0, le=100)] = Field(
        default=50.0, description="Others use it who use so much of its cores."
    )
    busy_grace_s: Annotated[float, Field(ge=0, le=1e7)] = Field(
        default=30.0, description="How long jobs go on when somebody begins to use it."
    )
    on_busy: Literal["release", "finish"] = Field(
        default="release",
        description="What becomes of jobs that run when it gets quiet, or used by somebody.",
    )


class CoreSettings(CorePart):
    """The settings, and what this process is."""

    host: str
    instance: str
    boot_id: str
    leave_grace_s: float = 5.0
    handover_grace_s: float = 60.0
    look_s: float = LOOK_S
