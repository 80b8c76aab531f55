"""For how long an answer is waited for: a plain state machine, told of the time; no clock, no IO.

Times are seconds of a monotonic clock.
"""

from __future__ import annotations

from typing import Final

USUAL_S: Final = 5.0
OFFLINE_S: Final = 1.0  # after a question went unanswered: it may be about to come back
SETTLED_S: Final = 0.5  # after its last repetition: whoever had heard it would have been seen since


class Patience:
    """The end of the wait for one answer.

    Of a coordinator that is offline by its own word, or by its will, no more is awaited than that
    it is being started again; but whoever asked for more patience than usual has it.
    """

    def __init__(self, timeout_s: float, now_s: float) -> None:
        """Begin to wait, for `timeout_s` at most."""
        self._end_s = now_s + timeout_s
        self._grace_s = OFFLINE_S if timeout_s <= USUAL_S else timeout_s
        self._offline_s: float | None = None

    def on_status(self, *, is_offline: bool, now_s: float) -> None:
        """Take in what the coordinator's status is, be it old or new."""
        if not is_offline:
            self._offline_s = None
        elif self._offline_s is None:
            self._offline_s = now_s

    def repeat_s(self, now_s: float, every_s: float) -> float:
        """Return when what was asked just now is to be asked again, every `every_s` seconds.

        That is the end, where after the next time nobody could answer before it.
        """
        at_s = now_s + every_s
        return at_s if self.end_s - at_s >= SETTLED_S else self.end_s

    def end_by(self, at_s: float) -> None:
        """Wait no longer than until then, whatever comes."""
        self._end_s = min(self._end_s, at_s)

    @property
    def end_s(self) -> float:
        """Until when the answer is waited for, as far as it is known now."""
        if self._offline_s is None:
            return self._end_s
        return min(self._end_s, self._offline_s + self._grace_s)
