"""`program.toml`: what a program is called, how it is started, and which parameters it has.

The format is docs/reference/programs.md. All faults are told at once, with their lines.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from broker import toml_text
from broker.errors import ConfigError
from broker.programs.program_faults import Fault, faults_of_values
from broker.protocol.messages import MAX_DATA, Needs
from broker.protocol.value_faults import fault_words
from broker.toml_lines import Lines

PROGRAM_FILE: Final = "program.toml"
MAX_PARAMETERS: Final = 64  # an assignment carries no more
_MAX_FILE_BYTES: Final = 64 * 1024
_REMEDY: Final = "docs/reference/programs.md tells what it has to say"


_Described = Annotated[
    dict[str, Annotated[str, Field(max_length=2000)]], Field(max_length=MAX_DATA)
]


class ProgramNeeds(Needs):
    """`[needs]`: what each job of the program needs of its host at least."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Program(BaseModel):
    """A program as its `program.toml` describes it.

    `parameters` has a JSON Schema for each. `command` is relative to the parcel, without a shell.
    `data` has the datasets that each job has to name, `inputs` the results of others that it may
    name, with what is expected of them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: str
    command: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=2000)], ...],
        Field(min_length=1, max_length=64, strict=False),  # TOML has lists, not tuples
    ]
    environment: Literal["uv", "none"] = "none"
    resumable: bool = False
    description: str = Field(default="", max_length=2000)
    parameters: Annotated[dict[str, dict[str, Any]], Field(max_length=MAX_PARAMETERS)] = {}
    data: _Described = {}
    inputs: _Described = {}
    needs: ProgramNeeds = ProgramNeeds()

    def hyper_schema(self) -> dict[str, JsonValue]:
        """Return the JSON Schema of its parameters.

        One without a default is required, but for the job's seed; no others are allowed.
        """
        properties: dict[str, JsonValue] = dict(self.parameters)
        required: list[JsonValue] = [
            name for name, one in self.parameters.items() if "default" not in one and name != "seed"
        ]
        return {
            "type": "object",
            **({"description": self.description} if self.description else {}),
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }


def read_program(folder: Path, builtin: Collection[str]) -> Program:
    """Return the program in a folder; `builtin` are the names of the built-in trainers.

    Raises `ConfigError` with every fault: `FILE:LINE: KEY: what is wrong`.
    """
    path = folder / PROGRAM_FILE
    text = _text(path)
    try:
        table = toml_text.tables(text)
        program, faults = _read(table, folder, builtin)
        lines = Lines(text)
        placed = [(_line(lines, one.path), one) for one in faults]
    except toml_text.TomlError as error:
        raise ConfigError(error.of(path)) from None
    except RecursionError:  # `a.b.c = 1` may go on for long
        raise ConfigError(
            f"{path}: has tables hundreds deep in one another; write it flat"
        ) from None
    if program is None or placed:
        placed.sort(key=lambda one: one[0])
        said = (f"{path}:{line}: {one}" if line else f"{path}: {one}" for line, one in placed)
        raise ConfigError(faults=tuple(said))
    return program


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", _REMEDY) from None
    if len(data) > _MAX_FILE_BYTES:
        raise ConfigError(f"{path}: is larger than {_MAX_FILE_BYTES // 1024} KiB", _REMEDY)
    try:
        return toml_text.decoded(data)
    except toml_text.TomlError as error:
        raise ConfigError(error.of(path)) from None


def _read(
    table: Mapping[str, Any], folder: Path, builtin: Collection[str]
) -> tuple[Program | None, list[Fault]]:
    """Return the program, none for a useless table, and all faults."""
    faults = [*faults_of_values(table, folder, builtin)]
    try:
        return Program.model_validate(table), faults
    except ValidationError as error:
        return None, [*map(_fault, error.errors(include_url=False)), *faults]


def _fault(told: Any) -> Fault:
    path = tuple(told["loc"])
    model = ProgramNeeds if path[0] == "needs" else Program
    return Fault(path, fault_words(told, list(model.model_fields)))


def _line(lines: Lines, path: tuple[str | int, ...]) -> int:
    """Return the line of a key, or of the table that it is missing in; 0: the whole file."""
    return lines.of(path) or lines.first(str(path[0])) or 0
