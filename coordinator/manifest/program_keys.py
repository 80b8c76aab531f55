"""The keys `program` and `parameters` of a job: which program they mean, and what it needs.

Among the known trainers a program stands as `NAME@DIGEST`, the newest of a name last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from broker.protocol.hyperschema import did_you_mean
from broker.protocol.messages import Needs
from coordinator.manifest.manifest_keys import JobTable

_SHOWN: Final = 12  # digits of a digest
_MOST: Final = 8  # programs, or datasets, in a message


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


def meant_program(text: str, trainers: Iterable[str]) -> tuple[str, str]:
    """Return `NAME@DIGEST` of the program that is meant, and what is wrong if there is none."""
    return meant_title(text, (one for one in trainers if "@" in one), "program", "fleet push DIR")


def meant_title(text: str, titles: Iterable[str], kind: str, push: str) -> tuple[str, str]:
    """Return the `NAME@DIGEST` that is meant, and what is wrong if there is none.

    A name alone means the newest; of a digest its beginning does. `titles` are of a `kind` that
    the command `push` sends, the newest of a name last.
    """
    name, _, digest = text.partition("@")
    known = [*titles]
    found = [title for title in known if title.startswith(f"{name}@{digest}")]
    if len(found) == 1 or (found and not digest):
        return found[-1], ""
    if found:
        return text, f"may mean {_shown(found, ' or ')}; write more of it"
    if same := [title for title in known if title.partition("@")[0] == name]:
        return text, f"the fleet has no {kind} {text!r}; of {name} it has {_shown(same, ', ')}"
    hint = did_you_mean(name, sorted({title.partition("@")[0] for title in known}))
    return text, f"the fleet has no {kind} {text!r}{hint}; `{push}` sends one"


def _shown(titles: list[str], between: str) -> str:
    """Return the newest of some programs or datasets, with the beginnings of their digests."""
    return between.join(title[: title.index("@") + 1 + _SHOWN] for title in titles[-_MOST:])


def needs_of(job: JobTable, least: Needs) -> Needs:
    """Return what a job needs: what it says, and at least what its program needs."""
    found = {}
    for name in Needs.model_fields:
        values = (getattr(job, name), getattr(least, name))
        found[name] = max((one for one in values if one is not None), default=None)
    return Needs(**found)
