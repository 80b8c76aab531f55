"""`[trainers.<name>]` of the configuration file: trainers of one's own (trainers.md).

The agent runs their commands; a coordinator knows their hyperparameters before a host comes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from broker.errors import ConfigError
from broker.protocol.hyperschema import did_you_mean, schema_faults
from broker.system.settings import find_config, read_section

MAX_TRAINERS: Final = 32
MAX_LEVELS: Final = 64  # of a schema; an agent announces no deeper one
MAX_SCHEMA_BYTES: Final = 16 * 1024
MAX_SCHEMAS_BYTES: Final = 192 * 1024  # the capability message has to hold all of them
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class OwnTrainer(BaseModel):
    """A program that trains models of one name; `hyper_schema` is the JSON Schema of its values."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]
    hyper_schema: dict[str, Any] = Field(alias="schema")
    description: str = Field(default="", max_length=2000)
    resumable: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the section; `key` is such as `[trainers.logreg] schema`."""

    file: Path
    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}: {self.key}: {self.message}"


def load_trainers(
    config: Path | None,
    builtin: Collection[str],
    environment: Mapping[str, str] | None = None,
    *,
    programs: bool,
) -> dict[str, OwnTrainer]:
    """Return the configured trainers by name; `programs`: their commands have to exist."""
    found, faults = read_trainers(config, builtin, environment, programs=programs)
    if faults:
        raise ConfigError("\n".join(map(str, faults)))
    return {name: trainer for name, trainer in found.items() if trainer is not None}


def read_trainers(
    config: Path | None,
    builtin: Collection[str],
    environment: Mapping[str, str] | None = None,
    *,
    programs: bool,
) -> tuple[dict[str, OwnTrainer | None], list[Fault]]:
    """Return the configured trainers by name, none for a useless one, and every fault."""
    path = find_config(config, os.environ if environment is None else environment)
    if path is None:
        return {}, []
    section = read_section(path, "trainers")
    found: dict[str, OwnTrainer | None] = {}
    said: list[tuple[str, str]] = []
    if len(section) > MAX_TRAINERS:
        said.append(("[trainers]", f"{len(section)} of them; at most {MAX_TRAINERS}"))
    for name, table in section.items():
        key = f"[trainers.{name}]"
        said += [(key, what) for what in _name_faults(name, builtin)]
        trainer, wrong = _trainer(path, table)
        wrong += [] if trainer is None else _faults(trainer, programs=programs)
        said += [(f"{key} {inner}".strip(), what) for inner, what in wrong]
        found[name] = trainer
    size_bytes = sum(len(json.dumps(one.hyper_schema)) for one in found.values() if one)
    if size_bytes > MAX_SCHEMAS_BYTES:
        all_of_them = f"schemas of {size_bytes} bytes in all; at most {MAX_SCHEMAS_BYTES}"
        said.append(("[trainers]", all_of_them))
    return found, [Fault(path, key, what) for key, what in said]


def _trainer(path: Path, table: object) -> tuple[OwnTrainer | None, list[tuple[str, str]]]:
    """Return a trainer, none for a useless table, and the faults by key."""
    if not isinstance(table, dict):
        return None, [("", "must be a table with command and schema")]
    values, wrong = dict(table), []
    if isinstance(values.get("schema"), str):
        try:
            values["schema"] = _read_schema(path.parent / values["schema"])
        except ConfigError as error:
            values["schema"] = {}
            wrong = [("schema", str(error))]
    try:
        trainer = OwnTrainer.model_validate(values)
    except ValidationError as error:
        return None, [*wrong, *map(_in_words, error.errors(include_url=False))]
    if _is_deep(trainer.hyper_schema, MAX_LEVELS):
        wrong = [("schema", f"is nested more than {MAX_LEVELS} levels deep")]
    if wrong:
        return None, wrong
    closed = {**trainer.hyper_schema, "additionalProperties": False}
    return trainer.model_copy(update={"hyper_schema": closed}), []


def _read_schema(path: Path) -> Any:
    try:
        data = path.read_bytes()
        return json.loads(data)
    except OSError as error:
        text = f"{path}: {error.strerror}; name a file, relative to this one"
        raise ConfigError(text) from None
    except (ValueError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else f"not JSON: {error}"
        raise ConfigError(f"{path}: is {what}") from None


def _is_deep(value: Any, levels: int) -> bool:
    """Tell whether lists and tables are nested deeper than `levels`, too deep for messages."""
    if not isinstance(value, dict | list):
        return False
    within = value.values() if isinstance(value, dict) else value
    return not levels or any(_is_deep(one, levels - 1) for one in within)


def _in_words(fault: Any) -> tuple[str, str]:
    """Return the key of a pydantic fault, and what is wrong."""
    key = ".".join(str(part) for part in fault["loc"])
    known = ["command", "schema", "description", "resumable"]
    if fault["type"] == "extra_forbidden":
        return key, f"unknown key{did_you_mean(key, known)}"
    if fault["type"] == "missing":
        return key, "missing; a trainer needs command and schema"
    message = fault["msg"]
    return key, f"{message[:1].lower()}{message[1:]}"


def _name_faults(name: str, builtin: Collection[str]) -> Iterator[str]:
    if not _NAME.fullmatch(name):
        yield "a name is a letter or digit, then up to 63 of letters, digits, '.', '_', '-'"
    if name in builtin:
        yield f"{name} is built in; choose another name"


def _faults(trainer: OwnTrainer, *, programs: bool) -> Iterator[tuple[str, str]]:
    size_bytes = len(json.dumps(trainer.hyper_schema))
    if size_bytes > MAX_SCHEMA_BYTES:
        yield "schema", f"{size_bytes} bytes of JSON; at most {MAX_SCHEMA_BYTES}"
    for what in schema_faults(trainer.hyper_schema):
        yield "schema", what
    if programs and shutil.which(trainer.command[0]) is None:
        yield "command", f"{trainer.command[0]!r} is no program on this host; give its whole path"
