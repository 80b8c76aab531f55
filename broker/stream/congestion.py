"""How much of an artifact may be under way, and in messages of what size, by what a sender sees.

It follows BBR (draft-ietf-ccwg-bbr) in what matters here. Each answer of the receiver gives a
sample of the rate at which data arrives, and of the round trip. As long as the rate grows, the
window doubles each round trip; from then on it is what fits into the path, the highest rate of the
last rounds by the shortest round trip, and into a short queue. Single losses do not matter to it;
where much is lost again and again, because a queue overflows somewhere, the window is cut (RFC
5681's decrease) and grows again slowly. Times are monotonic seconds, handed in; sizes are bytes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

MESSAGE_BYTES: Final = 512 * 1024  # more is hardly less work, and leaves the caches
FIRST_WINDOW_BYTES: Final = 64 * 1024
MESSAGES_PER_WINDOW: Final = 8
MESSAGE_S: Final = 0.02  # what else there is to say waits no longer for a message to pass
QUEUE_S: Final = (0.01, 0.05)  # long enough to outlast a busy processor, and to delay nobody
GROWTH: Final = 1.25  # less in a round is none
FULL_ROUNDS: Final = 3
RATE_ROUNDS: Final = 10
LOSS_WEIGHT: Final = 1 / 32
HEAVY_LOSS: Final = 0.1
CUT: Final = 0.7
RTT_VALID_S: Final = 10.0
TICK_S: Final = 1e-6  # no clock is better


@dataclass(frozen=True, slots=True)
class Mark:
    """What was known when a message was sent."""

    sent_s: float
    arrived_bytes: int
    arrived_s: float
    acked_sent_s: float


class Pace:
    """Window and size of messages of one sender."""

    def __init__(self, chunk_bytes: int, most_bytes: int = MESSAGE_BYTES) -> None:
        """Begin small. A message has whole chunks, and `most_bytes` if that is more than one."""
        self._chunk_bytes = chunk_bytes
        self._most_bytes = max(chunk_bytes, most_bytes)
        self._floor_bytes = 4 * chunk_bytes
        self._window_bytes = max(self._floor_bytes, FIRST_WINDOW_BYTES)
        self._arrived_bytes = 0
        self._arrived_s = 0.0
        self._acked_sent_s = 0.0
        self._rates: deque[float] = deque([0.0], RATE_ROUNDS)
        self._bursts: deque[int] = deque([0], RATE_ROUNDS)
        self._round_ends_bytes = 0
        self._full_rate = 0.0
        self._full_rounds = 0
        self._rtt_s: float | None = None
        self._rtt_at_s = 0.0
        self._probe_s: float | None = None  # when the window was closed to see the bare round trip
        self._probe_rtt_s: float | None = None
        self._lost_share = 0.0
        self._cap_bytes: float | None = None
        self._cut_at_bytes = 0
        self.proven_bytes = chunk_bytes  # the largest message that has arrived

    @property
    def window_bytes(self) -> int:
        """How much may be under way."""
        if self._probe_s is not None:
            return self._floor_bytes
        most_bytes = self._window_bytes if self._cap_bytes is None else self._cap_bytes
        return int(max(self._floor_bytes, min(self._window_bytes, most_bytes)))

    @property
    def message_bytes(self) -> int:
        """How large a message is: a power of two of chunks, at most twice what has got through."""
        wanted_bytes = min(self._most_bytes, 2 * self.proven_bytes)
        wanted_bytes = min(wanted_bytes, self._window_bytes // MESSAGES_PER_WINDOW)
        if self._rate():
            wanted_bytes = min(wanted_bytes, int(self._rate() * MESSAGE_S))
        chunks = max(1, wanted_bytes // self._chunk_bytes)
        return self._chunk_bytes << (chunks.bit_length() - 1)

    def mark(self, now_s: float, in_flight_bytes: int) -> Mark:
        """Return what to keep with a message that is sent now, beside what is under way already."""
        if not in_flight_bytes:  # what was idle is no sample of the path
            self._arrived_s = self._acked_sent_s = now_s
        return Mark(now_s, self._arrived_bytes, self._arrived_s, self._acked_sent_s)

    def on_round_trip(self, rtt_s: float, now_s: float) -> None:
        """A message that was sent once is acknowledged."""
        if self._probe_s is not None:
            self._probe_rtt_s = min(rtt_s, self._probe_rtt_s or rtt_s)
        if self._rtt_s is None or rtt_s <= self._rtt_s:
            self._rtt_s, self._rtt_at_s = rtt_s, now_s
        elif rtt_s > self._rtt_s + QUEUE_S[1]:
            self._full_rounds = FULL_ROUNDS  # there is a queue: it is full (RFC 9406)

    def on_acked(self, newest: Mark, acked_bytes: int, now_s: float) -> None:
        """An answer acknowledges so much; `newest` is of the message of it that was sent last."""
        self._arrived_bytes += acked_bytes
        self._arrived_s, self._acked_sent_s = now_s, newest.sent_s
        took_s = max(now_s - newest.arrived_s, newest.sent_s - newest.acked_sent_s, TICK_S)
        rate = (self._arrived_bytes - newest.arrived_bytes) / took_s
        if self._rtt_s is not None and took_s < self._rtt_s:
            rate = 0.0  # so short a span says more about the answers than about the path
        self._rates[-1] = max(self._rates[-1], rate)
        self._bursts[-1] = max(self._bursts[-1], acked_bytes)
        self._lost_share -= LOSS_WEIGHT * self._lost_share * acked_bytes / self.message_bytes
        self._lost_share = max(0.0, self._lost_share)
        if newest.arrived_bytes >= self._round_ends_bytes:
            self._end_round()
        self._grow(acked_bytes)
        self._look_after_round_trip(newest, now_s)

    def on_lost(self, lost_bytes: int, in_flight_bytes: int) -> None:
        """So much seems lost, of what was under way."""
        share = min(1.0, LOSS_WEIGHT * lost_bytes / self.message_bytes)
        self._lost_share += share * (1.0 - self._lost_share)
        if self._lost_share > HEAVY_LOSS and self._arrived_bytes >= self._cut_at_bytes:
            self._full_rounds = FULL_ROUNDS
            self._cap_bytes = max(CUT * in_flight_bytes, float(self._floor_bytes))
            self._cut_at_bytes = self._arrived_bytes + int(self._cap_bytes)  # once a round

    def _rate(self) -> float:
        return max(self._rates)

    def _end_round(self) -> None:
        self._round_ends_bytes = self._arrived_bytes
        if self._full_rounds < FULL_ROUNDS:
            if self._rate() >= GROWTH * self._full_rate:
                self._full_rate, self._full_rounds = self._rate(), 0
            else:
                self._full_rounds += 1
        self._rates.append(0.0)
        self._bursts.append(0)
        if self._cap_bytes is not None:
            self._cap_bytes += self.message_bytes
            if self._cap_bytes > 2 * self._window_bytes:
                self._cap_bytes = None

    def _grow(self, acked_bytes: int) -> None:
        if self._full_rounds < FULL_ROUNDS:
            self._window_bytes += acked_bytes
            return
        rtt_s = self._rtt_s or 0.0
        queue_s = min(max(rtt_s, QUEUE_S[0]), QUEUE_S[1])
        fits_bytes = self._rate() * (rtt_s + queue_s) + max(self._bursts)
        self._window_bytes = int(min(self._window_bytes + acked_bytes, fits_bytes))

    def _look_after_round_trip(self, newest: Mark, now_s: float) -> None:
        """Now and then, let the queue that is of our own making drain, and measure without it."""
        if self._probe_s is None:
            if self._rtt_s is not None and now_s - self._rtt_at_s > RTT_VALID_S:
                self._probe_s, self._probe_rtt_s = now_s, None
        elif newest.sent_s > self._probe_s and self._probe_rtt_s is not None:
            self._rtt_s, self._rtt_at_s = self._probe_rtt_s, now_s
            self._probe_s = None
