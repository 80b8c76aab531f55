"""What the broker refused, counted by reason."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Final

log = logging.getLogger("fleet.broker")

LINE_EVERY_S: Final = 60.0
MAX_DETAIL_CHARS: Final = 300


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
