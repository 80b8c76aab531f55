"""How faults of the disk are told: to the core, and in the log."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from broker.errors import FleetError, plain

log = logging.getLogger("fleet.agent")


def words(error: Exception) -> str:
    """Return an error in words; of a fault of our own, its kind as well."""
    if isinstance(error, OSError | FleetError):
        return plain(error)
    return f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def logged(what: str) -> Iterator[None]:
    """Log an OSError: what cannot be deleted now is deleted later."""
    try:
        yield
    except OSError as error:
        log.error("%s: %s", what, plain(error))
