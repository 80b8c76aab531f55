"""The errors of a manifest, with file, line, job, key and remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker.errors import ConfigError
from broker.protocol.hyperschema import did_you_mean
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
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems
        self.readable = readable


def single_problem(path: Path, message: str, line: int | None = None) -> ManifestError:
    """Return the error of a file that has this one problem."""
    return ManifestError((Problem(str(path), "", "", message, line),))


def _short(limit: object) -> object:
    """Return a limit as people write it: 0, not 0.0."""
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def fault_words(fault: Any, known: list[str]) -> str:
    """Say a pydantic fault in words that need no knowledge of Python."""
    given, context = fault.get("input"), fault.get("ctx", {})
    key = str(fault["loc"][-1]) if fault["loc"] else ""
    shown = repr(given)[:80]
    simple = {
        "int_type": f"must be a whole number, not {shown}",
        "float_type": f"must be a number, not {shown}",
        "string_type": f"must be a string, not {shown}",
        "bool_type": f"must be true or false, not {shown}",
        "list_type": f'must be a list, such as ["a", "b"], not {shown}',
        "dict_type": f"must be a table, not {shown}",
        "model_type": f"must be a table, not {shown}",
        "greater_than": f"must be more than {_short(context.get('gt'))}, not {shown}",
        "greater_than_equal": f"must be at least {_short(context.get('ge'))}, not {shown}",
        "less_than_equal": f"must be at most {_short(context.get('le'))}, not {shown}",
        "literal_error": f"must be {context.get('expected')}, not {shown}",
        "too_long": f"has more than {context.get('max_length')} entries",
        "missing": f"missing; write {key} = ...",
        "string_too_long": f"longer than {context.get('max_length')} characters",
        "finite_number": f"must be a finite number, not {shown}",
    }
    if fault["type"] == "extra_forbidden":
        return f"unknown key{did_you_mean(key, known)}"
    return simple.get(fault["type"], str(fault["msg"]))
