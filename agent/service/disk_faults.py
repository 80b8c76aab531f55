"""How faults of the disk, and of what comes, are told: to the core, and in the log."""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Iterator

from broker.errors import BadStream, FleetError, plain
from broker.programs.unusable import Unusable
from broker.protocol.messages import Fault

log = logging.getLogger("fleet.agent")


def words(error: Exception) -> str:
    """Return an error in words; of a fault of our own, its kind as well."""
    if isinstance(error, OSError | FleetError):
        return plain(error)
    return f"{type(error).__name__}: {error}"


def fault_of(error: Exception) -> Fault:
    """Return an error as a code with figures."""
    match error:
        case Unusable():
            return error.fault
        case BadStream():
            return Fault(code="bad-content")
        case OSError(errno=errno.ENOSPC):
            return Fault(code="no-room")
        case OSError():
            return Fault(code="disk", name=errno.errorcode.get(error.errno or 0, "EIO"))
        case _:
            return Fault(code="internal", name=type(error).__name__)


@contextlib.contextmanager
def logged(what: str) -> Iterator[None]:
    """Log an OSError: what cannot be deleted now is deleted later."""
    try:
        yield
    except OSError as error:
        log.error("%s: %s", what, plain(error))
