"""The keys `program` and `parameters` of a job: which program they mean.

Among the known trainers a program stands as `NAME@DIGEST`, the newest of a name last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from broker.protocol.messages import Program, TrainerInfo
from coordinator.jobs.causes import cause, in_words
from coordinator.jobs.titles import is_path, meant, not_one

# A trainer of which nothing is known but its name: nobody has told what the fleet has.
ANY_PROGRAM: Final = TrainerInfo(
    hyper_schema={}, telemetry=False, program=Program(digest="0" * 64, size_bytes=1)
)


def misplaced(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the keys that do not go together, each with what is wrong."""
    program = table.get("program")
    for key in ("parameters",) if program is None else ("model", "hyper"):
        if key in table:
            of = "is a program's" if program is None else f"does not go with program = {program!r}"
            yield key, f"{of}; write model and hyper, or program and parameters"


def with_program(table: dict[str, Any], model: str) -> dict[str, Any]:
    """Return a table with its program as `model`, and the parameters as `hyper`."""
    rest = {key: value for key, value in table.items() if key not in {"parameters", "hyper"}}
    return rest | {"model": model, "hyper": table.get("parameters", {})}


def meant_title(text: str, titles: Iterable[str] | None, no_such: str) -> tuple[str, str]:
    """Return the `NAME@DIGEST` that is meant, and what is wrong, by its code, if it is not one.

    Without `titles` any name is one.
    """
    if is_path(text):
        push = "push" if no_such == "no_program" else "data push NAME"
        told = f"`fleet {push} {text}` prints the name that is meant here"
        return text, f"{text!r} is a folder, and a manifest names what was pushed; {told}"
    if titles is None:
        return text, ""
    known = [one for one in titles if "@" in one]
    found = meant(text, known)
    if len(found) == 1:
        return found[0], ""
    return text, in_words(cause(no_such, **not_one(text, known)))
