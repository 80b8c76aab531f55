"""The options that every program of the fleet has, and its sections of the configuration file."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from broker.errors import ConfigError
from broker.system.settings import BrokerSettings, Settings
from broker.system.trainer_settings import OwnTrainer, load_trainers

T = TypeVar("T")
S = TypeVar("S", bound=Settings)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every program has."""
    BrokerSettings.add_options(parser, "url", "topic_root", "identity", "plain")
    parser.add_argument("--config", type=Path, help="configuration file")


class Faults(list[str]):
    """Collects faults, so that all are shown at once."""

    def of(self, load: Callable[[], T]) -> T | None:
        """Return what `load` returns; none when it raises `ConfigError`, whose faults are kept."""
        try:
            return load()
        except ConfigError as error:
            self += [fault for fault in error.faults if fault not in self]
            return None


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """What could be loaded for a program, and the faults of the rest."""

    settings: S | None
    broker: BrokerSettings | None
    own: Mapping[str, OwnTrainer]
    faults: Faults

    def whole(self) -> tuple[S, BrokerSettings]:
        """Return the settings. Raises `ConfigError` with every fault."""
        if self.faults or self.settings is None or self.broker is None:
            raise ConfigError(faults=tuple(self.faults))
        return self.settings, self.broker


def load_all(
    kind: type[S], arguments: argparse.Namespace, builtin: Collection[str], *, programs: bool
) -> Loaded[S]:
    """Load a program's section, the broker's and the trainers; for the latter `load_trainers`."""
    faults, file = Faults(), arguments.config
    return Loaded(
        faults.of(lambda: kind.by_options(arguments)),
        faults.of(lambda: BrokerSettings.by_options(arguments)),
        faults.of(lambda: load_trainers(file, builtin, programs=programs)) or {},
        faults,
    )
