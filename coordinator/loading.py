"""A coordinator's settings, by command line, environment and file; every fault at once."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.options import Faults, broker_settings
from broker.settings import BrokerSettings
from broker.trainers import OwnTrainer, load_trainers
from coordinator.builtin import builtin_trainers
from coordinator.settings import CoordinatorSettings, HomeAssistantSettings

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
