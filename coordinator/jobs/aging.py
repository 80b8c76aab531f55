"""Guards retention against clock jumps: age is the smaller of two readings.

The clock of a machine without a battery may be wrong by a month until it is synchronised. What is
deleted meanwhile is lost.
"""

from __future__ import annotations

from broker.clock import Now


class Aging:
    """Two readings of the wall clock, some time apart; the earlier time counts."""

    def __init__(self, now: Now) -> None:
        """Take the first reading."""
        self._before = now

    def look(self, now: Now) -> float:
        """Return the time to judge ages by: the clock's, or the last look's plus what passed."""
        before, self._before = self._before, now
        return min(now.wall_s, before.wall_s + max(0.0, now.mono_s - before.mono_s))
