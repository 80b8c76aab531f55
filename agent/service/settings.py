"""`[agent]`: what an agent may be told. etc/fleet.toml.example explains each."""

from __future__ import annotations

import argparse
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, field_validator, model_validator

from agent.core.core_settings import CorePart
from agent.trainer import MODELS
from broker.client.access import AGENT, open_access
from broker.client.options import Loaded, load_all
from broker.errors import ConfigError
from broker.protocol.acl import fault_of
from broker.protocol.topics import is_host
from broker.system.machine import system_clock
from broker.system.settings import BrokerSettings, Settings, state_home


def default_host() -> str:
    """Return this machine's name, made fit for a topic."""
    name = re.sub(r"[^a-z0-9._-]+", "-", platform.node().split(".")[0].lower()).strip("-._")[:63]
    return name if is_host(name) else f"host-{name}"[:63].rstrip("-._")


class AgentSettings(Settings, CorePart):
    """The agent's section of the configuration file."""

    section: ClassVar[str] = "agent"
    environment_names: ClassVar[Mapping[str, str]] = {"FLEET_HOST_ID": "host"}
    options: ClassVar[Mapping[str, str]] = {
        "state": "--state",
        "data": "--data",
        "host": "--host",
        "heartbeat_s": "--heartbeat",
        "slots": "--slots",
        "threads": "--threads",
    }

    host: str = Field(default_factory=default_host, description="This host's name in the fleet.")
    description: str = Field(default="", max_length=2000, description="What people call it.")
    state: Path = Field(
        default=Path(), description="Folder of the spool and the work folders; agent-HOST if unset."
    )
    data: Path | None = Field(default=None, description="Folder of the prepared data.")
    slots: int | None = Field(
        default=None, ge=1, le=64, description="Jobs at once; one, or one a GPU, if unset."
    )
    threads: int | None = Field(
        default=None, ge=1, le=4096, description="Threads of a trainer; the slot's share if unset."
    )
    cuda: bool = Field(default=True, description="Whether trainers may use this host's GPUs.")

    @field_validator("host")
    @classmethod
    def _host_fits(cls, host: str) -> str:
        if not is_host(host):
            raise ValueError(f"{host!r} is no host's name: {fault_of(host)}")
        return host

    @model_validator(mode="after")
    def _state_of_host(self) -> Self:
        if self.state == Path():
            object.__setattr__(self, "state", state_home() / f"agent-{self.host}")
        # Trainers run in folders of their own: a relative path would mean another place to them.
        object.__setattr__(self, "state", self.state.absolute())
        return self


def load(arguments: argparse.Namespace) -> Loaded[AgentSettings]:
    """Load what the options of a program say, as far as it goes."""
    return load_all(AgentSettings, arguments, MODELS, programs=True)


def certified_host(broker: BrokerSettings) -> str | None:
    """Return the host that an agent's certificate here names; none when none can be used."""
    try:
        access = open_access(broker, AGENT, system_clock().wall_s)
    except ConfigError:
        return None
    return None if access.identity is None else access.identity.name
