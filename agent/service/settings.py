"""`[agent]`: what an agent may be told. etc/fleet.toml.example explains each."""

from __future__ import annotations

import argparse
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from agent.core.state import OwnerSettings
from agent.trainer import MODELS
from broker.client.access import AGENT, open_access
from broker.client.options import Faults, broker_settings
from broker.errors import ConfigError
from broker.protocol.acl import fault_of
from broker.protocol.messages import HostRules
from broker.protocol.quiet_hours import parse_hours
from broker.protocol.topics import is_host
from broker.system.machine import system_clock
from broker.system.settings import BrokerSettings, Settings, state_home
from broker.system.trainer_settings import OwnTrainer, load_trainers

Seconds = Annotated[float, Field(gt=0, le=1e7)]


def default_host() -> str:
    """Return this machine's name, made fit for a topic."""
    name = re.sub(r"[^a-z0-9._-]+", "-", platform.node().split(".")[0].lower()).strip("-._")[:63]
    return name if is_host(name) else f"host-{name}"[:63].rstrip("-._")


class AgentSettings(Settings):
    """The agent's section of the configuration file."""

    section: ClassVar[str] = "agent"
    environment_names: ClassVar[Mapping[str, str]] = {"FLEET_HOST_ID": "host"}

    host: str = Field(default_factory=default_host, description="This host's name in the fleet.")
    description: str = Field(default="", max_length=2000, description="What people call it.")
    state: Path = Field(
        default=Path(), description="Folder of the spool and the work folders; agent-HOST if unset."
    )
    data: Path | None = Field(default=None, description="Folder of the prepared data.")
    heartbeat_s: Annotated[float, Field(ge=0.2, le=3600)] = Field(
        default=30.0, description="Time between heartbeats."
    )
    slots: int | None = Field(
        default=None, ge=1, le=64, description="Jobs at once; one, or one a GPU, if unset."
    )
    threads: int | None = Field(
        default=None, ge=1, le=4096, description="Threads of a trainer; the slot's share if unset."
    )
    chunk_bytes: int = Field(
        default=512 * 1024, ge=1024, le=1024 * 1024,
        description="Most bytes of an artifact in one message.",
    )  # fmt: skip
    stop_grace_s: Seconds = Field(
        default=10.0, description="Time a trainer has between SIGTERM and SIGKILL."
    )
    quiet_hours: tuple[str, ...] = Field(
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
    cuda: bool = Field(default=True, description="Whether trainers may use this host's GPUs.")

    @field_validator("host")
    @classmethod
    def _host_fits(cls, host: str) -> str:
        if not is_host(host):
            raise ValueError(f"{host!r} is no host's name: {fault_of(host)}")
        return host

    @field_validator("quiet_hours")
    @classmethod
    def _hours_fit(cls, quiet_hours: tuple[str, ...]) -> tuple[str, ...]:
        for text in quiet_hours:
            try:
                parse_hours(text)
            except ConfigError as error:
                raise ValueError(str(error)) from None
        return quiet_hours

    def owner(self) -> OwnerSettings:
        """Return what the owner has said about using this machine."""
        rules = HostRules(
            quiet_hours=self.quiet_hours, idle_only=self.idle_only, on_busy=self.on_busy
        )
        return OwnerSettings(rules, self.idle_after_s, self.busy_grace_s, self.busy_percent)

    @model_validator(mode="after")
    def _state_of_host(self) -> Self:
        if self.state == Path():
            object.__setattr__(self, "state", state_home() / f"agent-{self.host}")
        # Trainers run in folders of their own: a relative path would mean another place to them.
        object.__setattr__(self, "state", self.state.absolute())
        return self


# An agent's settings, by its command line, the environment and the file; every fault at once.

_NAMES = {
    "state": "state",
    "data": "data",
    "host": "host",
    "heartbeat": "heartbeat_s",
    "slots": "slots",
    "threads": "threads",
}  # by option; a program need not have all of them


@dataclass(frozen=True, slots=True)
class Loaded:
    """What could be loaded, and a line for each fault of the rest."""

    settings: AgentSettings | None
    broker: BrokerSettings | None
    own: Mapping[str, OwnTrainer]
    faults: Faults

    def whole(self) -> tuple[AgentSettings, BrokerSettings, Mapping[str, OwnTrainer]]:
        """Return all of it. Raises `ConfigError` with every fault."""
        self.faults.check()
        assert self.settings is not None  # noqa: S101 - or there would be a fault
        assert self.broker is not None  # noqa: S101 - likewise
        return self.settings, self.broker, self.own


def load(arguments: argparse.Namespace) -> Loaded:
    """Load what the options of a program say, as far as it goes."""
    faults = Faults()
    return Loaded(
        faults.of(lambda: agent_settings(arguments)),
        faults.of(lambda: broker_settings(arguments)),
        faults.of(lambda: load_trainers(arguments.config, MODELS, programs=True)) or {},
        faults,
    )


def agent_settings(arguments: argparse.Namespace, host: str | None = None) -> AgentSettings:
    """Return `[agent]` by the options, for `host` where its certificate names it."""
    said = {name: getattr(arguments, option, None) for option, name in _NAMES.items()}
    return AgentSettings.load(arguments.config, said if host is None else said | {"host": host})


def certified_host(broker: BrokerSettings) -> str | None:
    """Return the host that an agent's certificate here names; none when none can be used."""
    try:
        access = open_access(broker, AGENT, system_clock().wall_s)
    except ConfigError:
        return None
    return None if access.identity is None else access.identity.name
