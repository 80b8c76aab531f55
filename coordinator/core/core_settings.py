"""The settings that the core decides by, and what it knows of its own process. Reads no file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from broker.protocol.messages import TrainerInfo
from broker.protocol.signing import OperatorKey

DAY_S = 86_400.0
Seconds = Annotated[float, Field(gt=0, le=1e7)]


class CorePart(BaseModel):
    """The part of `[coordinator]` that the core is given."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    stale_after_s: Seconds = Field(
        default=600.0, description="A job that no heartbeat vouched for in this time is lost."
    )
    max_attempts: int = Field(
        default=3, ge=1, le=100, description="A job that was lost so often is failed."
    )
    claim_timeout_s: Seconds = Field(
        default=30.0, description="How long a host may take to answer an assignment."
    )
    host_timeout_s: Seconds = Field(
        default=100.0, description="A host that is silent for this time is offline."
    )
    sleep_grace_s: Seconds = Field(
        default=7200.0, description="A job of a machine that went to sleep is lost after this time."
    )
    prefer_cuda_grace_s: float | None = Field(
        default=None, ge=0, le=1e7, description="Seconds; overrides the manifest's."
    )
    window_bytes: int = Field(
        default=16 * 1024 * 1024, ge=64 * 1024, le=1 << 30,
        description="Bytes of artifacts on their way in at once, of all uploads together.",
    )  # fmt: skip
    max_fetches: int = Field(
        default=16, ge=1, le=10_000,
        description="Programs, datasets, inputs and checkpoints that hosts fetch at once; the next "
        "ones wait.",
    )  # fmt: skip
    keep_unreferenced_days: float = Field(
        default=30.0, gt=0, le=1e5,
        description="Days for which an artifact is kept that is no job's result any more.",
    )  # fmt: skip
    request_window_s: float = Field(
        default=60.0, ge=1, le=3600,
        description="For how long before and after its time a signed command is taken.",
    )  # fmt: skip

    @property
    def keep_results_s(self) -> float:
        """How long a result is kept that no job has any more."""
        return self.keep_unreferenced_days * DAY_S


class CoreSettings(CorePart):
    """The settings, and what this process is: its ids, keys, plan and trainers."""

    instance: str
    boot_id: str
    machine: str = ""
    version: str = ""
    started_at: str = ""
    manifest: str | None = None
    broker: str = ""
    operator_key: OperatorKey | None = None
    receipt_key: bytes = Field(default=b"", repr=False)
    trainers: Mapping[str, TrainerInfo] = {}
    home_commands: bool = False
