"""A page of hosts as it goes over the wire: what all of them have alike is in it once.

The schemas of its trainers are nine tenths of what a host says of itself, and those of one release
are the same on every host. So a page has the different sets of trainers beside its rows, and each
row the number of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def whole(page: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of an answer to `workers`, each with its trainers in their place."""
    sets = page.get("trainers") or []
    return [_whole(row, sets) for row in page["workers"]]


def known_names(page: Mapping[str, Any]) -> set[str]:
    """Return which hosts of an answer to `workers` are known, those that are not there as well."""
    rows = [*page["workers"], *page["others"]]
    return {row["host"] for row in rows if row.get("known", True)}


def _whole(row: dict[str, Any], sets: list[Any]) -> dict[str, Any]:
    capability = row.get("capability")
    if not isinstance(capability, dict) or not isinstance(capability.get("trainers"), int):
        return row
    number = capability["trainers"]
    trainers = sets[number] if 0 <= number < len(sets) else {}
    return {**row, "capability": {**capability, "trainers": trainers}}
