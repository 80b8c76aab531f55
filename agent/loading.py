"""An agent's settings, by its command line, the environment and the file; every fault at once."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from agent.settings import AgentSettings
from agent.trainer import MODELS
from broker.access import AGENT, open_access
from broker.errors import ConfigError
from broker.machine import system_clock
from broker.options import Faults, broker_settings
from broker.settings import BrokerSettings
from broker.trainers import OwnTrainer, load_trainers

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
