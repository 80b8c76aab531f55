"""`[trainers.<name>]` of the configuration file: trainers that a host has beside the built-in ones.

The agent runs their commands. The coordinator, given the same section, knows their hyperparameters
before the first host that has them has come. What a trainer has to do is in docs/trainers.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from broker.errors import ConfigError
from broker.hyperschema import schema_faults
from broker.meant import did_you_mean
from broker.settings import find_config, read_section

MAX_TRAINERS: Final = 32
MAX_LEVELS: Final = 64  # of a schema; an agent announces no deeper one
MAX_SCHEMA_BYTES: Final = 16 * 1024
MAX_SCHEMAS_BYTES: Final = 192 * 1024  # the capability message has to hold all of them
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class OwnTrainer(BaseModel):
    """A program that trains models of one name.

    `hyper_schema` is the JSON Schema of its hyperparameters; keys it does not name are refused.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]
    hyper_schema: dict[str, Any] = Field(alias="schema")
    description: str = Field(default="", max_length=2000)
    resumable: bool = False


def load_trainers(
    config: Path | None,
    builtin: Collection[str],
    environment: Mapping[str, str] | None = None,
    *,
    programs: bool,
) -> dict[str, OwnTrainer]:
    """Return the trainers of the configuration file, by name.

    With `programs`, their commands have to be there. Raises `ConfigError`, a line a fault, naming
    file, key and remedy.
    """
    path = find_config(config, os.environ if environment is None else environment)
    if path is None:
        return {}
    section = read_section(path, "trainers")
    found, faults = {}, []
    if len(section) > MAX_TRAINERS:
        faults.append(f"{path}: [trainers]: {len(section)} of them; at most {MAX_TRAINERS}")
    for name, table in section.items():
        trainer = None
        where = f"{path}: [trainers.{name}]"
        try:
            trainer = _trainer(path, where, table)
        except ConfigError as error:
            faults.append(str(error))
        faults += [f"{where}{what}" for what in _name_faults(name, builtin)]
        if trainer is not None:
            faults += [f"{where} {what}" for what in _faults(trainer, programs=programs)]
            found[name] = trainer
    size_bytes = sum(len(json.dumps(one.hyper_schema)) for one in found.values())
    if size_bytes > MAX_SCHEMAS_BYTES:
        all_of_them = f"schemas of {size_bytes} bytes in all; at most {MAX_SCHEMAS_BYTES}"
        faults.append(f"{path}: [trainers]: {all_of_them}")
    if faults:
        raise ConfigError("\n".join(faults))
    return found


def _trainer(path: Path, where: str, table: object) -> OwnTrainer:
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: must be a table with command and schema")
    values = dict(table)
    if isinstance(values.get("schema"), str):
        values["schema"] = _read_schema(path.parent / values["schema"], where)
    try:
        trainer = OwnTrainer.model_validate(values)
    except ValidationError as error:
        lines = [f"{where} {_words(fault)}" for fault in error.errors(include_url=False)]
        raise ConfigError("\n".join(lines)) from None
    if _is_deep(trainer.hyper_schema, MAX_LEVELS):
        raise ConfigError(f"{where} schema: is nested more than {MAX_LEVELS} levels deep")
    closed = {**trainer.hyper_schema, "additionalProperties": False}
    return trainer.model_copy(update={"hyper_schema": closed})


def _read_schema(path: Path, where: str) -> Any:
    try:
        data = path.read_bytes()
        return json.loads(data)
    except OSError as error:
        text = f"{where} schema: {path}: {error.strerror}; name a file, relative to this one"
        raise ConfigError(text) from None
    except (ValueError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else f"not JSON: {error}"
        raise ConfigError(f"{where} schema: {path}: is {what}") from None


def _is_deep(value: Any, levels: int) -> bool:
    """Tell whether more than `levels` lists or tables lie in each other: messages bear no more."""
    if not isinstance(value, dict | list):
        return False
    within = value.values() if isinstance(value, dict) else value
    return not levels or any(_is_deep(one, levels - 1) for one in within)


def _words(fault: Any) -> str:
    key = ".".join(str(part) for part in fault["loc"])
    known = ["command", "schema", "description", "resumable"]
    if fault["type"] == "extra_forbidden":
        return f"{key}: unknown key{did_you_mean(key, known)}"
    if fault["type"] == "missing":
        return f"{key}: missing; a trainer needs command and schema"
    message = fault["msg"]
    return f"{key}: {message[:1].lower()}{message[1:]}"


def _name_faults(name: str, builtin: Collection[str]) -> Iterator[str]:
    if not _NAME.fullmatch(name):
        yield ": a name is a letter or digit, then up to 63 of letters, digits, '.', '_', '-'"
    if name in builtin:
        yield f": {name} is built in; choose another name"


def _faults(trainer: OwnTrainer, *, programs: bool) -> Iterator[str]:
    size_bytes = len(json.dumps(trainer.hyper_schema))
    if size_bytes > MAX_SCHEMA_BYTES:
        yield f"schema: {size_bytes} bytes of JSON; at most {MAX_SCHEMA_BYTES}"
    for what in schema_faults(trainer.hyper_schema):
        yield f"schema: {what}"
    if programs and shutil.which(trainer.command[0]) is None:
        yield f"command: {trainer.command[0]!r} is no program on this host; give its whole path"
