"""Logging of the services: one line an event on standard error."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

from broker.errors import ConfigError


def setup(level: str = "INFO") -> None:
    """Log to standard error at `level` and above. Raises `ConfigError` for an unknown level."""
    known = logging.getLevelNamesMapping()
    if level.upper() not in known:
        raise ConfigError(f"log level {level!r}: use DEBUG, INFO, WARNING or ERROR")
    formatter = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    formatter.converter = time.gmtime
    formatter.default_time_format = "%Y-%m-%dT%H:%M:%S"
    formatter.default_msec_format = "%s.%03dZ"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=known[level.upper()], handlers=[handler], force=True)


def announce(event: Mapping[str, Any], words: str) -> None:
    """Say on standard output how far this program is: as a line of JSON, at a terminal in words."""
    sys.stdout.write(f"{words if sys.stdout.isatty() else json.dumps(event)}\n")
    sys.stdout.flush()
