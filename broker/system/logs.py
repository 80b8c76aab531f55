"""Logging of the services: one line an event on standard error."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

from broker.errors import ConfigError
from broker.wrapping import printable


def setup(level: str = "INFO") -> None:
    """Log to standard error at `level` and above. Raises `ConfigError` for an unknown level."""
    known = logging.getLevelNamesMapping()
    if level.upper() not in known:
        raise ConfigError(f"log level {level!r}: use DEBUG, INFO, WARNING or ERROR")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    logging.basicConfig(level=known[level.upper()], handlers=[handler], force=True)


class _Lines(logging.Formatter):
    """Time in UTC, level, logger and message, without control characters."""

    def __init__(self) -> None:
        super().__init__(
            "%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
        )
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def announce(event: Mapping[str, Any], words: str) -> None:
    """Write a program's progress to standard output: JSON, or words at a terminal."""
    sys.stdout.write(f"{words if sys.stdout.isatty() else json.dumps(event)}\n")
    sys.stdout.flush()
