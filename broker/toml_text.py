"""Reads TOML; a fault names its line, for `FILE:LINE: WHAT`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from broker.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_PLACE: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


class TomlError(ConfigError):
    """A text is not TOML; `line` counts from 1, none if unknown."""

    def __init__(self, what: str, line: int | None = None) -> None:
        super().__init__(what)
        self.line = line

    def of(self, path: Path) -> str:
        """Return it as a message about a file."""
        return f"{path}: {self}" if self.line is None else f"{path}:{self.line}: {self}"


def decoded(data: bytes) -> str:
    """Return a file's text without a byte order mark. Raises `TomlError`."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TomlError("is not UTF-8 text; save it as UTF-8", line) from None


def tables(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text. Raises `TomlError`."""
    import tomllib  # most often there is no file

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        place = _PLACE.search(said)
        if place is None:
            raise TomlError(f"is not TOML: {said}") from None
        what = f"is not TOML: {said[: place.start()]}"
        if place[1] is None:
            raise TomlError(f"{what} (at the end)", _last_line(text)) from None
        raise TomlError(f"{what} (column {place[2]})", int(place[1])) from None
    except (ValueError, RecursionError) as error:  # ValueError: a number of 5,000 digits
        raise TomlError(f"is not TOML: {error}") from None


def _last_line(text: str) -> int:
    return text.rstrip().count("\n") + 1
