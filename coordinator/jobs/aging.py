"""How old things are: nothing is deleted by a single look at the clock.

A machine without a clock of its own battery may be a month ahead for a minute, and what was deleted
then would not come back when the clock does.
"""

from __future__ import annotations

from broker.clock import Now


class Aging:
    """Two looks at the wall clock, some time apart: the one that makes things younger counts."""

    def __init__(self, now: Now) -> None:
        """Take the first look."""
        self._before = now

    def look(self, now: Now) -> float:
        """Return the time to judge ages by: the clock's, or the last look's plus what passed."""
        before, self._before = self._before, now
        return min(now.wall_s, before.wall_s + max(0.0, now.mono_s - before.mono_s))
