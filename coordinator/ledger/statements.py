"""The ledger's SQL: the schema, its migrations, and the named statements of queries.sql."""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import Final

_NAME: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_MIGRATION: Final = re.compile(r"\d{4}_\w+\.sql$")


@functools.cache
def scripts() -> tuple[str, ...]:
    """Return the scripts that make the newest schema: schema.sql, then each 0002_NAME.sql in order.

    The n-th leads from version n - 1 to version n of a file.
    """
    steps = sorted(
        one.name for one in resources.files(__package__).iterdir() if _MIGRATION.match(one.name)
    )
    return (_text("schema.sql"), *map(_text, steps))


def sql(name: str) -> str:
    """Return a statement of queries.sql. Raises KeyError for a name that it does not have."""
    return _statements()[name]


@functools.cache
def _statements() -> dict[str, str]:
    _, *parts = _NAME.split(_text("queries.sql"))
    return dict(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")
