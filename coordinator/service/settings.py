"""`[coordinator]` and `[homeassistant]`, explained one by one in etc/fleet.toml.example."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from broker.client.options import Faults, broker_settings
from broker.system.settings import BrokerSettings, Settings, state_home
from broker.system.trainer_settings import OwnTrainer, load_trainers
from coordinator.manifest.builtin import builtin_trainers

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


# A coordinator's settings, by command line, environment and file; every fault at once.

_NAMES = {
    "state": "state",
    "manifest": "manifest",
    "ca": "ca",
    "prefer_cuda_grace": "prefer_cuda_grace_s",
}  # by option; a program need not have all of them


@dataclass(frozen=True, slots=True)
class Loaded:
    """What could be loaded, and a line for each fault of the rest."""

    settings: CoordinatorSettings | None
    broker: BrokerSettings | None
    own: Mapping[str, OwnTrainer]
    home: HomeAssistantSettings | None
    faults: Faults

    def whole(
        self,
    ) -> tuple[
        CoordinatorSettings, BrokerSettings, Mapping[str, OwnTrainer], HomeAssistantSettings
    ]:
        """Return all of it. Raises `ConfigError` with every fault."""
        self.faults.check()
        assert self.settings is not None  # noqa: S101 - or there would be a fault
        assert self.broker is not None  # noqa: S101 - likewise
        assert self.home is not None  # noqa: S101 - likewise
        return self.settings, self.broker, self.own, self.home


def load(arguments: argparse.Namespace) -> Loaded:
    """Load what the options of a program say, as far as it goes."""
    faults, file = Faults(), arguments.config
    said = {name: getattr(arguments, option, None) for option, name in _NAMES.items()}
    return Loaded(
        faults.of(lambda: _coordinator(arguments, said)),
        faults.of(lambda: broker_settings(arguments)),
        faults.of(lambda: load_trainers(file, builtin_trainers(), programs=False)) or {},
        faults.of(lambda: HomeAssistantSettings.load(file)),
        faults,
    )


def _coordinator(arguments: argparse.Namespace, said: Mapping[str, Any]) -> CoordinatorSettings:
    settings = CoordinatorSettings.load(arguments.config, said)
    if getattr(arguments, "no_metrics", False):
        return settings.model_copy(update={"metrics": None})
    return settings
