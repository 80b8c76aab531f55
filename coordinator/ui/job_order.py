"""The order in which people look for jobs: the same in `fleet list` and on the full screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from coordinator.ui.words import seconds

_FIRST: Final = ("running", "claimed", "pending")


def by_row(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what rows of jobs are sorted by."""
    return by_activity(
        row["state"], row["finished_at"], row["priority"], row["created_at"], row["name"]
    )


def by_activity(
    state: str, finished_at: str | None, priority: int, created_at: str, name: str
) -> tuple[Any, ...]:
    """Return what jobs are sorted by: running, claimed, pending, then what is over, newest first.

    Of those that are not over, and of those that ended at once, the next to be claimed is first.
    """
    turn = (-priority, created_at, name)
    if state in _FIRST:
        return _FIRST.index(state), 0.0, *turn
    return len(_FIRST), -seconds(finished_at), *turn
