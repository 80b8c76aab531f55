"""What the broker refused, counted by reason, and how busy it is."""

from __future__ import annotations

import logging
import math
from collections import Counter, deque
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

from broker.protocol.messages import BrokerLoad

log = logging.getLogger("fleet.broker")

LINE_EVERY_S: Final = 60.0
MAX_DETAIL_CHARS: Final = 300
LOAD_OVER_S: Final = 60.0


class Reason(StrEnum):
    """Why something was refused; the value is how the log and `refused` name it."""

    TLS = "tls"  # no certificate, one of another CA's, no TLS at all
    TIMEOUT = "timeout"  # no complete CONNECT in time
    CROWD = "crowd"  # too many connections
    NOBODY = "nobody"  # a certificate whose name is nobody's
    REVOKED = "revoked"
    EXPIRED = "expired"
    WEBSOCKET = "websocket"  # none, or one that a page may not open
    CONNECT = "connect"  # a CONNECT that is not acceptable
    WILL = "will"  # a will outside the rights
    MALFORMED = "malformed"
    OVERSIZE = "oversize"
    PUBLISH = "publish"  # a message outside the rights
    SUBSCRIBE = "subscribe"  # a filter beyond the rights, or one too many
    RETAINED = "retained"  # too much retained: delivered, but not kept
    SILENT = "silent"  # nothing in 1.5 times the keepalive
    SLOW = "slow"  # a message for somebody who does not keep up
    MEMORY = "memory"  # too much waits for all together: who has the most of it is disconnected


class Refusals:
    """Counts refusals. Of each reason the first is logged, then at most a line a minute."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """Start at nothing; `now_s` is a monotonic clock."""
        self._now_s = now_s
        self.counts: Counter[Reason] = Counter()
        self._told: dict[Reason, tuple[float, int]] = {}  # when, and the count then

    def add(self, reason: Reason, detail: str) -> None:
        """Count one. `detail` is for the log: names and sizes, never a payload.

        What a client has chosen in it cannot begin a line of its own.
        """
        self.counts[reason] += 1
        now_s, count = self._now_s(), self.counts[reason]
        told_s, told = self._told.get(reason, (-math.inf, count - 1))
        if now_s - told_s < LINE_EVERY_S:
            return
        self._told[reason] = now_s, count
        more = count - told - 1
        since = f" (and {more} more since the last line)" if more else ""
        plain = "".join(one if one.isprintable() else "?" for one in detail[:MAX_DETAIL_CHARS])
        log.warning("refused (%s): %s%s", reason, plain, since)


class _Sample(NamedTuple):
    at_s: float
    late_s: float
    cpu_s: float
    messages: int
    size_bytes: int


class Meter:
    """Measures the load of the last minute, from a sample at each `tick`.

    `now_s` is a monotonic clock, `cpu_s` the processor time of this process.
    """

    def __init__(self, now_s: Callable[[], float], cpu_s: Callable[[], float]) -> None:
        """Start at nothing."""
        self._now_s = now_s
        self._cpu_s = cpu_s
        self.messages = 0
        self.size_bytes = 0
        self._samples: deque[_Sample] = deque()
        self.tick(0.0)

    def tick(self, late_s: float) -> None:
        """Take a sample, `late_s` after it was due: the event loop was busy for so long."""
        now_s = self._now_s()
        self._samples.append(_Sample(now_s, late_s, self._cpu_s(), self.messages, self.size_bytes))
        while len(self._samples) > 2 and self._samples[1].at_s < now_s - LOAD_OVER_S:
            self._samples.popleft()

    def load(self, clients: int, max_clients: int) -> BrokerLoad:
        """Return the means of the last minute, and the 99th percentile of the lateness."""
        first, last = self._samples[0], self._samples[-1]
        over_s = max(last.at_s - first.at_s, 1e-3)
        ranked = sorted(one.late_s for one in self._samples)
        return BrokerLoad(
            clients=clients,
            max_clients=max_clients,
            messages_s=round((last.messages - first.messages) / over_s, 1),
            bytes_s=round((last.size_bytes - first.size_bytes) / over_s),
            busy=round((last.cpu_s - first.cpu_s) / over_s, 3),
            lag_p99_s=round(max(0.0, ranked[-1 - len(ranked) // 100]), 3),
        )
