"""`[coordinator]` and `[homeassistant]`, explained one by one in etc/fleet.toml.example."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from broker.client.options import Loaded, load_all
from broker.system.settings import Settings, state_home
from coordinator.core.core_settings import CorePart
from coordinator.manifest.builtin import builtin_trainers


class CoordinatorSettings(Settings, CorePart):
    """The coordinator's section of the configuration file."""

    section: ClassVar[str] = "coordinator"
    options: ClassVar[Mapping[str, str]] = {
        "state": "--state",
        "manifest": "--manifest",
        "ca": "--ca",
        "prefer_cuda_grace_s": "--prefer-cuda-grace",
    }

    state: Path = Field(
        default_factory=lambda: state_home() / "coordinator",
        description="Folder of the ledger, the artifact store and the logs.",
    )
    manifest: Path | None = Field(default=None, description="The plan; none: serve the ledger.")
    ca: Path | None = Field(
        default=None, description="Folder of the CA; with it, hosts' certificates are renewed."
    )
    reserve_bytes: int = Field(
        default=64 * 1024 * 1024, ge=0, le=1 << 50,
        description="What artifacts leave free on the disk of the store, for ledger and logs.",
    )  # fmt: skip
    keep_events_days: float = Field(
        default=90.0, gt=0, le=1e5, description="Days of each job's history; the newest 200 stay."
    )
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


def load(
    arguments: argparse.Namespace,
) -> tuple[Loaded[CoordinatorSettings], HomeAssistantSettings]:
    """Load what the options of a program say, as far as it goes."""
    found = load_all(CoordinatorSettings, arguments, builtin_trainers(), programs=False)
    home = found.faults.of(lambda: HomeAssistantSettings.load(arguments.config))
    return found, home or HomeAssistantSettings()
