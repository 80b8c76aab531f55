"""The ways in which a trainer ends other than well, each with the kind and exit code it reports."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import ValidationError

from agent.trainer.common.config import EXIT_BAD_INPUT, EXIT_FAILED


def plain(error: BaseException) -> str:
    """Return an error in words: of the system's what it means, without numbers and paths."""
    # Arrow's own errors of the system have a number, and bring a text with the number in it.
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return str(error)


def key_and_problem(error: ValidationError) -> tuple[str, str]:
    """Return where the first fault of a file is, and what it is."""
    first = error.errors(include_url=False)[0]
    return ".".join(map(str, first["loc"])) or "file", first["msg"].removeprefix("Value error, ")


class TrainerError(Exception):
    """A failure that is reported in one line, without a traceback."""

    kind = "internal"
    exit_code = EXIT_FAILED


class BadInputError(TrainerError):
    """The data or the arguments are wrong; the same input will fail again."""

    kind = "bad_input"
    exit_code = EXIT_BAD_INPUT

    @classmethod
    def at(cls, place: Path | str, key: str, problem: str, remedy: str) -> BadInputError:
        """Build the one line that names the file (its last part), the key and what to do."""
        name = place.name if isinstance(place, Path) else place
        return cls(f"{name}: {key}: {problem}; {remedy}")


class DivergedError(TrainerError):
    """The loss is no longer a finite number."""

    kind = "diverged"


class InterruptedBySignalError(BaseException):
    """SIGTERM arrived. Not an Exception: nothing on the way out may take it for a failure."""
