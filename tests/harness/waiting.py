"""Waiting for what others do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

DEADLINE_S: Final = 60.0
Found = TypeVar("Found")


def wait_until(
    condition: Callable[[], Found],
    what: object = "",
    deadline_s: float = DEADLINE_S,
) -> Found:
    """Wait until a condition holds, and return what it is.

    If it does not in time, fail with `what`, or what that returns.
    """
    end_s = time.monotonic() + deadline_s
    while not (found := condition()):
        if time.monotonic() > end_s:
            raise AssertionError(f"waited {deadline_s} s: {what() if callable(what) else what}")
        time.sleep(0.01)
    return found
