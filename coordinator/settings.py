"""`[coordinator]` and `[homeassistant]`, explained one by one in etc/fleet.toml.example."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from broker.settings import Settings, state_home

Seconds = Annotated[float, Field(gt=0, le=1e7)]


class CoordinatorSettings(Settings):
    """The coordinator's section of the configuration file."""

    section: ClassVar[str] = "coordinator"

    state: Path = Field(
        default_factory=lambda: state_home() / "coordinator",
        description="Folder of the ledger, the artifact store and the logs.",
    )
    manifest: Path | None = Field(default=None, description="The plan; none: serve the ledger.")
    ca: Path | None = Field(
        default=None, description="Folder of the CA; with it, hosts' certificates are renewed."
    )
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
        default=None, ge=0, le=1e7, description="Overrides the manifest's."
    )
    window_bytes: int = Field(
        default=16 * 1024 * 1024, ge=64 * 1024, le=1 << 30,
        description="Bytes of artifacts on their way in at once, of all uploads together.",
    )  # fmt: skip
    reserve_bytes: int = Field(
        default=64 * 1024 * 1024, ge=0, le=1 << 50,
        description="What artifacts leave free on the disk of the store, for ledger and logs.",
    )  # fmt: skip
    keep_events_days: float = Field(
        default=90.0, gt=0, le=1e5, description="Days of each job's history; the newest 200 stay."
    )
    keep_unreferenced_days: float = Field(
        default=30.0, gt=0, le=1e5,
        description="Days for which an artifact is kept that is no job's result any more.",
    )  # fmt: skip
    request_window_s: float = Field(
        default=60.0, ge=1, le=3600,
        description="For how long before and after its time a signed command is taken.",
    )  # fmt: skip
    metrics: str | None = Field(
        default=None, description="HOST:PORT at which Prometheus may ask; none: nobody may."
    )
    metrics_plain: bool = Field(
        default=False, description="Let others than this machine read the metrics, without TLS."
    )
    max_log_bytes: int = Field(
        default=1024 * 1024, ge=4096, le=1 << 32, description="Log kept of each job."
    )


class HomeAssistantSettings(Settings):
    """Home Assistant's section of the configuration file."""

    section: ClassVar[str] = "homeassistant"

    enabled: bool = Field(default=False, description="Show the fleet in Home Assistant.")
    unsigned_commands: bool = Field(
        default=False,
        description="Take its commands though others have to be signed: whoever is on the broker "
        "may give them.",
    )
