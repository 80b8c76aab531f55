"""The options that every program of the fleet has: where the broker is, and as whom to connect."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from broker.errors import ConfigError
from broker.system.settings import BrokerSettings

T = TypeVar("T")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every program has."""
    parser.add_argument("--broker", help="mqtts://HOST:PORT, or mqtt:// on this machine")
    parser.add_argument("--root", help="topic root")
    parser.add_argument("--identity", type=Path, help="folder of the certificate, for mqtts")
    parser.add_argument("--plain", action="store_true", help="no TLS beyond this machine")
    parser.add_argument("--config", type=Path, help="configuration file")


def broker_settings(arguments: argparse.Namespace) -> BrokerSettings:
    """Return the broker's settings by these options. Raises `ConfigError`."""
    said = {
        "url": arguments.broker,
        "topic_root": arguments.root,
        "identity": arguments.identity,
        "plain": arguments.plain or None,
    }
    return BrokerSettings.load(arguments.config, said)


class Faults:
    """Collects faults, so that all are shown at once."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def of(self, load: Callable[[], T]) -> T | None:
        """Return what `load` returns; none when it raises `ConfigError`, whose lines are kept."""
        try:
            return load()
        except ConfigError as error:
            self.lines += [line for line in str(error).splitlines() if line not in self.lines]
            return None

    def check(self) -> None:
        """Raise `ConfigError` with all lines when there are any."""
        if self.lines:
            raise ConfigError("\n".join(self.lines))
