"""On which line of a TOML file a key stands; tomllib itself does not tell.

The file is read statement by statement: a statement is the least number of lines that tomllib takes
by themselves. So the lines are right for every key that TOML can write: quoted, dotted, in an
inline table, after a text of many lines that looks like a table.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any, Final

Path = tuple[str | int, ...]

MOST_AGAIN: Final = 1_000_000  # characters that are read again as a part of a longer statement


class Lines:
    """Where the keys of a text stand that is TOML; found when first asked for."""

    def __init__(self, text: str) -> None:
        """Keep the text."""
        self._text = text
        self._found: dict[Path, int] | None = None

    def of(self, path: Path) -> int | None:
        """Return the line, from 1, of a key such as `("jobs", 2, "seed")`, or of its table."""
        if self._found is None:
            self._found = _locate(self._text)
        for end in range(len(path), 0, -1):
            if (line := self._found.get(path[:end])) is not None:
                return line
        return None

    def first(self, key: str) -> int | None:
        """Return the line on which a key of the top, or anything within it, stands first."""
        self.of((key,))
        return min(
            (at for path, at in (self._found or {}).items() if path[:1] == (key,)), default=None
        )


def _locate(text: str) -> dict[Path, int]:
    found: dict[Path, int] = {}
    lengths: dict[Path, int] = {}
    table: Path = ()
    for line, statement, parsed in _statements(text):
        if statement.lstrip().startswith("["):
            table = _enter(parsed, lengths)
            found.setdefault(table, line)
        else:
            for path in _paths(parsed):
                found.setdefault(table + path, line)
    return found


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield each statement with its line; they end early before one that is far too long."""
    lines = text.split("\n")
    again = 0
    first = 0
    while first < len(lines):
        end = first + 1
        while (parsed := _parsed(statement := "\n".join(lines[first:end]))) is None:
            end, again = end + 1, again + len(statement)
            if end > len(lines) or again > MOST_AGAIN:
                return
        if parsed:
            yield first + 1, statement, parsed
        first = end


def _parsed(statement: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(f"{statement}\n")
    except (ValueError, RecursionError):
        return None


def _enter(parsed: dict[str, Any], lengths: dict[Path, int]) -> Path:
    """Return the table that a header opens; of a list of tables, its next or its newest entry."""
    path: Path = ()
    inner: Any = parsed
    while inner:
        ((key, inner),) = inner.items()
        path += (key,)
        if isinstance(inner, list):
            lengths[path] = lengths.get(path, 0) + 1
            inner = inner[0]
        if path in lengths:
            path += (lengths[path] - 1,)
    return path


def _paths(value: Any) -> Iterator[Path]:
    """Yield the path of everything that a value holds."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, held in inner:
        yield (key,)
        if isinstance(held, dict | list):
            yield from ((key, *path) for path in _paths(held))
