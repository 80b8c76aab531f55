"""The sender's window: how much of an artifact may be in flight, and how large a message is.

The window follows the delay, as LEDBAT's does (RFC 6817): it doubles each round trip until a queue
builds up somewhere, and then keeps that queue near `QUEUE_S`, so that heartbeats wait no longer
than that behind an artifact. A loss cuts it, once a round trip. Times are monotonic seconds, handed
in; sizes are bytes. The receiver's window, in chunks, is in `stream.py`.
"""

from __future__ import annotations

import math
from typing import Final

MESSAGE_BYTES: Final = 512 * 1024  # larger ones are hardly less work
FIRST_WINDOW_BYTES: Final = 64 * 1024
MESSAGES_PER_WINDOW: Final = 8
QUEUE_S: Final = 0.05
GAIN: Final = 2.0  # messages that the window may grow by in a round trip
CUT: Final = 0.8
BASE_VALID_S: Final = 10.0  # the path may have become longer


class Pace:
    """Window and message size of one sender."""

    def __init__(self, chunk_bytes: int, most_bytes: int = MESSAGE_BYTES) -> None:
        """Begin small. A message is whole chunks, at most `most_bytes` if it is more than one."""
        self._chunk_bytes = chunk_bytes
        self._most_bytes = max(chunk_bytes, most_bytes)
        self._least_bytes = 4 * chunk_bytes
        self._window_bytes = float(max(self._least_bytes, FIRST_WINDOW_BYTES))
        self._is_starting = True
        self._arrived_bytes = 0
        self._cut_at_bytes = 0
        self._rtt_s = 0.0
        self._bases_s = [math.inf, math.inf]  # shortest round trips, of the last period and of this
        self._base_at_s = 0.0
        self.proven_bytes = chunk_bytes  # the largest message that has arrived

    @property
    def window_bytes(self) -> int:
        """How much may be in flight."""
        return int(self._window_bytes)

    @property
    def message_bytes(self) -> int:
        """How large a message is: a power of two of chunks, at most twice what has got through."""
        wanted_bytes = min(self._most_bytes, 2 * self.proven_bytes)
        wanted_bytes = min(wanted_bytes, self.window_bytes // MESSAGES_PER_WINDOW)
        chunks = max(1, wanted_bytes // self._chunk_bytes)
        return self._chunk_bytes << (chunks.bit_length() - 1)

    def on_round_trip(self, rtt_s: float, now_s: float) -> None:
        """A message that was sent once is acknowledged."""
        if now_s - self._base_at_s > BASE_VALID_S:
            self._bases_s = [self._bases_s[1], math.inf]
            self._base_at_s = now_s
        self._bases_s[1] = min(self._bases_s[1], rtt_s)
        self._rtt_s = rtt_s

    def on_acked(self, acked_bytes: int) -> None:
        """So much has arrived."""
        self._arrived_bytes += acked_bytes
        queue_s = max(0.0, self._rtt_s - min(self._bases_s))
        self._is_starting = self._is_starting and queue_s <= QUEUE_S
        if self._is_starting:
            self._window_bytes += acked_bytes
            return
        room = max(-1.0, 1.0 - queue_s / QUEUE_S)
        step_bytes = GAIN * room * self.message_bytes * acked_bytes / self._window_bytes
        self._window_bytes = max(self._least_bytes, self._window_bytes + step_bytes)

    def on_lost(self) -> None:
        """A message seems lost."""
        self._is_starting = False
        if self._arrived_bytes >= self._cut_at_bytes:
            self._window_bytes = max(self._least_bytes, CUT * self._window_bytes)
            self._cut_at_bytes = self._arrived_bytes + self.window_bytes
