"""The errors of a manifest, with file, line, job, key and remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.errors import ConfigError
from coordinator.jobs.plan_entries import Plan

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Problem:
    """One error of a manifest; what does not apply is empty. `line` none: the whole file."""

    file: str
    job: str
    key: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        file = self.file if self.line is None else f"{self.file}:{self.line}"
        where = ": ".join(part for part in (file, self.job, self.key) if part)
        return f"{where}: {self.message}"


class ManifestError(ConfigError):
    """A manifest has errors: all of them by line, and a plan of what could be read."""

    def __init__(self, problems: tuple[Problem, ...], readable: Plan | None = None) -> None:
        """Say them all, one a line."""
        super().__init__(faults=tuple(map(str, problems)))
        self.problems = problems
        self.readable = readable


def single_problem(path: Path, message: str, line: int | None = None) -> ManifestError:
    """Return the error of a file that has this one problem."""
    return ManifestError((Problem(str(path), "", "", message, line),))
