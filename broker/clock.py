"""The time as it is handed to the cores: a value, never a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Now:
    """One instant, told by two clocks.

    `mono_s` (seconds, monotonic, arbitrary origin) measures durations; `wall_s` (seconds since the
    Unix epoch) is for people and may jump either way.
    """

    mono_s: float
    wall_s: float

    def text(self) -> str:
        """Return the wall clock as RFC 3339 in UTC, to the millisecond."""
        return rfc3339(self.wall_s)


Clock = Callable[[], Now]


class Randomness(Protocol):
    """The only randomness that a core may draw from: handed in, so that tests control it."""

    def random(self) -> float:
        """Return a float in [0, 1)."""
        ...


@lru_cache(maxsize=8)  # all that comes together has come at one instant
def rfc3339(wall_s: float) -> str:
    """Return seconds since the epoch as RFC 3339 in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(wall_s, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def until(text: str | None, now: Now) -> float:
    """Return how many seconds an RFC 3339 time is ahead of the wall clock; 0 if it is past."""
    if not text:
        return 0.0
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp() - now.wall_s)
    except ValueError:
        return 0.0


def backoff_s(failures: int, base_s: float, cap_s: float, rng: Randomness) -> float:
    """Return how long to wait after `failures` failures in a row: exponential, half of it jitter.

    The jitter keeps a fleet whose broker restarted from coming back in one instant.
    """
    ceiling_s = min(cap_s, base_s * 2.0 ** min(failures, 32))
    return ceiling_s * (0.5 + 0.5 * rng.random())
