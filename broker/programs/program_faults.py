"""What is wrong with the values of a `program.toml` beyond their kinds."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from broker.file_names import is_plain
from broker.protocol.hyperschema import check_hyper, did_you_mean, schema_faults
from broker.system.trainer_settings import name_faults, schema_size_faults

# What the fleet tells a program by arguments of these names, now or in a later version.
TAKEN: Final = frozenset({"checkpoint_dir", "data", "input", "out_dir", "resume"})
# Options of `fleet run`, which says parameters by options, too.
OPTIONS: Final = frozenset({
    "after", "broker", "config", "fold", "folds", "get", "help", "hyper", "identity", "json",
    "min_cores", "min_ram_gib", "min_vram_gib", "mode", "model", "n_resamples", "name", "not_on",
    "on", "on_lost", "plain", "prefer_cuda", "priority", "require_cuda", "retries", "root", "split",
    "stall_timeout_s", "timeout", "timeout_s", "train_host", "wait",
})  # fmt: skip
LOCK_FILES: Final = ({"uv.lock", "pyproject.toml"}, {"requirements.txt"})
_READ_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")  # in an argument, after a dot
_NUMBER: Final = {"type": "number"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_TEXT: Final = {"type": "string"}
_LIST: Final = {"type": "array", "minItems": 1}
# The keywords of JSON Schema that are checked (`check_hyper`) or shown, with schemas of their own.
# Another one would be promised and not kept.
_KEYWORDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "type": {}, "const": {}, "default": {}, "enum": _LIST, "anyOf": _LIST,
    "title": _TEXT, "description": _TEXT,
    "minimum": _NUMBER, "maximum": _NUMBER,
    "exclusiveMinimum": _NUMBER, "exclusiveMaximum": _NUMBER,
    "minLength": _COUNT, "maxLength": _COUNT, "minItems": _COUNT, "maxItems": _COUNT,
}  # fmt: skip


class Fault(NamedTuple):
    """A fault; `path` is the key, such as `("parameters", "lr", "type")`."""

    path: tuple[str | int, ...]
    message: str

    def __str__(self) -> str:
        # A key in quotes may hold what commands a terminal.
        key = ".".join(part for part in self.path if isinstance(part, str))
        return f"{key if key.isprintable() else ascii(key)}: {self.message}"


def faults_of_values(
    table: Mapping[str, Any], folder: Path, builtin: Collection[str]
) -> Iterator[Fault]:
    """Yield the faults of a program's table that pydantic does not see; others are passed over."""
    name, command, parameters = map(table.get, ("name", "command", "parameters"))
    if isinstance(name, str):
        yield from (Fault(("name",), what) for what in _name_faults(name, builtin))
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        yield from (Fault(("command",), what) for what in _command_faults(command, folder))
    if table.get("environment") == "uv" and not any(
        all((folder / one).is_file() for one in files) for files in LOCK_FILES
    ):
        what = (
            '"uv" needs uv.lock and pyproject.toml, or requirements.txt, beside this file; '
            "run `uv lock`"
        )
        yield Fault(("environment",), what)
    if isinstance(parameters, dict):
        yield from _parameters_faults(parameters)
    for key in ("data", "inputs"):
        for name in names if isinstance(names := table.get(key), dict) else ():
            if not _READ_NAME.fullmatch(name):
                what = "must be up to 64 of a-z, A-Z, 0-9, '_', '-', a letter or digit first"
                yield Fault((key, name), what)


def _name_faults(name: str, builtin: Collection[str]) -> Iterator[str]:
    yield from (wrong := [*name_faults(name, builtin)])
    if not wrong and not is_plain(name):
        yield f"{name!r} cannot be the name of a folder on Windows; choose another"


def _command_faults(command: list[str], folder: Path) -> Iterator[str]:
    if any("\0" in word for word in command):
        yield "one of its words has a NUL in it; leave that out"
        return
    first, second = [*command, "", ""][:2]
    program, script = PurePosixPath(first), PurePosixPath(second)
    if "/" in first and not program.is_absolute():
        yield (
            f"{first!r} is a file of the parcel, and none of those is executable; name what runs "
            f'it, such as ["sh", {json.dumps(first)}]'
        )
    is_script = program.name.startswith("python") and script.suffix == ".py"
    is_within = not script.is_absolute() and ".." not in script.parts
    if is_script and not (is_within and (folder / script).is_file()):
        yield f"{str(script)!r} is not in this folder; name a file of the program"


def _parameters_faults(parameters: Mapping[str, Any]) -> Iterator[Fault]:
    faults = [
        Fault(("parameters", name, *path), what)
        for name, one in parameters.items()
        if isinstance(one, dict)
        for path, what in _parameter_faults(name, one)
    ]
    if not faults:
        faults = [Fault(("parameters",), what) for what in schema_size_faults(parameters)]
    yield from faults


def _parameter_faults(name: str, schema: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what is wrong with a parameter: the key below it, and words."""
    try:
        json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError):
        yield (), "must hold finite numbers, strings, booleans, lists and tables: no dates"
        return
    if name in TAKEN:
        yield (), "the fleet has an argument of this name; choose another"
    if name in OPTIONS:
        yield (), "`fleet run` has an option of this name; choose another"
    if name == "seed" and schema.get("default", 0) != 0:
        yield ("default",), "must be left out: it is the job's seed, 0 unless the job has another"
    prefix = f"properties.{name}"
    for said in schema_faults({"type": "object", "properties": {name: schema}}):
        key, _, what = said.removeprefix(prefix).partition(": ")
        yield tuple(filter(None, key.split("."))), what
    for keyword in schema:
        if keyword not in _KEYWORDS:
            yield (keyword,), f"unknown keyword{did_you_mean(keyword, _KEYWORDS)}"
    for keyword, what in check_hyper(schema, {"properties": _KEYWORDS}, name):
        yield (keyword,), what
    if "default" in schema:
        default = {name: schema["default"]}
        for _, what in check_hyper(default, {"properties": {name: schema}}, name):
            yield ("default",), what
