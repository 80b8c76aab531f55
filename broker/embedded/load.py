"""What the broker has to do, over the last minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.protocol.messages import BrokerLoad

OVER_S: Final = 60.0


class _Sample(NamedTuple):
    at_s: float
    cpu_s: float
    messages: int
    size_bytes: int


class Meter:
    """Counts what clients publish; with what `tick` is told now and then it knows the load.

    `now_s` is a monotonic clock, `cpu_s` the processor time of this process.
    """

    def __init__(self, now_s: Callable[[], float], cpu_s: Callable[[], float]) -> None:
        """Start at nothing."""
        self._now_s = now_s
        self._cpu_s = cpu_s
        self._late_s: deque[tuple[float, float]] = deque()
        self.messages = 0
        self.size_bytes = 0
        self._samples = deque([self._sample()])

    def tick(self, late_s: float) -> None:
        """Take a sample, `late_s` after it was due: so long the event loop was busy."""
        sample = self._sample()
        self._samples.append(sample)
        self._late_s.append((sample.at_s, late_s))
        since_s = sample.at_s - OVER_S
        while self._samples[1].at_s < since_s:
            self._samples.popleft()
        while self._late_s[0][0] < since_s:
            self._late_s.popleft()

    def load(self, clients: int, max_clients: int) -> BrokerLoad:
        """Return the means of the last minute, and how late 99 of 100 samples were at most."""
        first, last = self._samples[0], self._samples[-1]
        over_s = max(last.at_s - first.at_s, 1e-3)
        ranked = sorted(late_s for _, late_s in self._late_s) or [0.0]
        return BrokerLoad(
            clients=clients,
            max_clients=max_clients,
            messages_s=round((last.messages - first.messages) / over_s, 1),
            bytes_s=round((last.size_bytes - first.size_bytes) / over_s),
            busy=round((last.cpu_s - first.cpu_s) / over_s, 3),
            lag_p99_s=round(max(0.0, ranked[-1 - len(ranked) // 100]), 3),
        )

    def _sample(self) -> _Sample:
        return _Sample(self._now_s(), self._cpu_s(), self.messages, self.size_bytes)
