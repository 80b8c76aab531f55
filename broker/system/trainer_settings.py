"""`[trainers.<name>]` of the configuration file: trainers of one's own (trainers.md).

The agent runs their commands; a coordinator knows their hyperparameters before a host comes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from broker.errors import ConfigError
from broker.protocol.hyperschema import schema_faults
from broker.protocol.messages import TrainerInfo
from broker.system.settings import faults_of, find_config, read_section

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
    preload: tuple[Annotated[str, Field(pattern=r"^\w+(\.\w+)*$")], ...] = ()
    telemetry: bool = False
    reads: Annotated[tuple[str, ...], Field(max_length=64)] = ()

    def info(self, version: str | None = "") -> TrainerInfo:
        """Return what an agent says of it, and a coordinator knows of it beforehand."""
        return TrainerInfo(
            hyper_schema=self.hyper_schema, resumable=self.resumable, telemetry=self.telemetry,
            version=version,
        )  # fmt: skip


_KEYS: Final = ("command", "schema", "description", "resumable", "preload", "telemetry", "reads")


class Fault(NamedTuple):
    """A fault of the section; `key` is such as `[trainers.logreg] schema`."""

    file: Path
    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}: {self.key}: {self.message}"


def load_trainers(
    config: Path | None,
    builtin: Collection[str],
    environment: Mapping[str, str] = os.environ,
    *,
    programs: bool,
) -> dict[str, OwnTrainer]:
    """Return the configured trainers by name; `programs`: their commands have to exist."""
    found, faults = read_trainers(config, builtin, environment, programs=programs)
    if faults:
        raise ConfigError(faults=tuple(map(str, faults)))
    return {name: trainer for name, trainer in found.items() if trainer is not None}


def read_trainers(
    config: Path | None,
    builtin: Collection[str],
    environment: Mapping[str, str] = os.environ,
    *,
    programs: bool,
) -> tuple[dict[str, OwnTrainer | None], list[Fault]]:
    """Return the configured trainers by name, none for a useless one, and every fault."""
    path = find_config(config, environment)
    if path is None:
        return {}, []
    section = read_section(path, "trainers")
    found: dict[str, OwnTrainer | None] = {}
    said: list[tuple[str, str]] = []
    if len(section) > MAX_TRAINERS:
        said.append(("", f"{len(section)} of them; at most {MAX_TRAINERS}"))
    for name, table in section.items():
        found[name], wrong = _trainer(path, table)
        wrong += [("", what) for what in name_faults(name, builtin)]
        trainer = found[name]
        if programs and trainer is not None and shutil.which(trainer.command[0]) is None:
            what = f"{trainer.command[0]!r} is no program on this host; give its whole path"
            wrong.append(("command", what))
        for one in trainer.reads if programs and trainer is not None else ():
            if not Path(one).exists():
                wrong.append(("reads", f"{one} is not there; name a file or folder"))
        said += [(f".{name}] {key}".rstrip(), what) for key, what in wrong]
    size_bytes = sum(len(json.dumps(one.hyper_schema)) for one in found.values() if one)
    if size_bytes > MAX_SCHEMAS_BYTES:
        said.append(("", f"schemas of {size_bytes} bytes in all; at most {MAX_SCHEMAS_BYTES}"))
    return found, [Fault(path, f"[trainers{key or ']'}", what) for key, what in said]


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
        return None, [*wrong, *faults_of(error, list(_KEYS))]
    if not wrong:
        wrong = [("schema", what) for what in _schema_faults(trainer.hyper_schema)]
    if trainer.preload and not _is_python(trainer.command):
        what = 'needs a command such as ["python3", "train.py"] or ["python3", "-m", "train"]'
        wrong.append(("preload", what))
    closed = {**trainer.hyper_schema, "additionalProperties": False}
    reads = tuple(str(path.parent / one) for one in trainer.reads)
    return trainer.model_copy(update={"hyper_schema": closed, "reads": reads}), wrong


def _is_python(command: Sequence[str]) -> bool:
    """Whether a command is a Python interpreter and, without options, what it is to run."""
    program, *words = command
    runs = words[1:] if words[:1] == ["-m"] else words[:1]
    named = bool(runs) and not runs[0].startswith("-")
    return Path(program).name.startswith("python") and named


def _read_schema(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
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
    inner = value.values() if isinstance(value, dict) else value
    return not levels or any(_is_deep(one, levels - 1) for one in inner)


def name_faults(name: str, builtin: Collection[str]) -> Iterator[str]:
    """Yield why no trainer may be called `name`; `builtin` are the names of those built in."""
    if not _NAME.fullmatch(name):
        yield "a name is a letter or digit, then up to 63 of letters, digits, '.', '_', '-'"
    if name in builtin:
        yield f"{name} is built in; choose another name"


def schema_size_faults(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a schema is too deep or too large for the message that announces it."""
    if _is_deep(schema, MAX_LEVELS):
        yield f"is nested more than {MAX_LEVELS} levels deep"
        return
    size_bytes = len(json.dumps(schema))
    if size_bytes > MAX_SCHEMA_BYTES:
        yield f"{size_bytes} bytes of JSON; at most {MAX_SCHEMA_BYTES}"


def _schema_faults(schema: Mapping[str, Any]) -> Iterator[str]:
    yield from schema_size_faults(schema)
    yield from schema_faults({**schema, "additionalProperties": False})
