"""Logging of the services: one line an event on standard error."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

from broker.errors import ConfigError
from broker.sentences import printable


def setup(level: str = "INFO") -> None:
    """Log to standard error at `level` and above. Raises `ConfigError` for an unknown level."""
    known = logging.getLevelNamesMapping()
    if level.upper() not in known:
        raise ConfigError(f"log level {level!r}: use DEBUG, INFO, WARNING or ERROR")
    # What these look for at each record, no line bears; Python's manual tells so to spare it.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001 - see above
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    logging.basicConfig(level=known[level.upper()], handlers=[handler], force=True)


class _Lines(logging.Formatter):
    """Time, level, logger and message; the time is made into text once a second."""

    def __init__(self) -> None:
        super().__init__()
        self._second = (0, "")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's
        at = int(record.created)
        if at != self._second[0]:
            self._second = (at, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)))
        text = f"{self._second[1]}.{int(record.msecs):03d}Z"
        return f"{text} {record.levelname:7} {record.name}: {printable(record.message)}"


def announce(event: Mapping[str, Any], words: str) -> None:
    """Say on standard output how far this program is: as a line of JSON, at a terminal in words."""
    sys.stdout.write(f"{words if sys.stdout.isatty() else json.dumps(event)}\n")
    sys.stdout.flush()
