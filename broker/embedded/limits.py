"""What the broker refused, counted by reason, and told in the log without filling it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from broker.embedded.settings import ServerSettings
from broker.system.address import machine_of

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
        self._counts: Counter[Reason] = Counter()
        self._told_s: dict[Reason, float] = {}
        self._untold: Counter[Reason] = Counter()

    @property
    def counts(self) -> dict[Reason, int]:
        """How many of each reason there were."""
        return dict(self._counts)

    def add(self, reason: Reason, detail: str) -> None:
        """Count one. `detail` is for the log: names and sizes, never a payload.

        What a client has chosen in it cannot begin a line of its own.
        """
        self._counts[reason] += 1
        now_s = self._now_s()
        told_s = self._told_s.get(reason)
        if told_s is not None and now_s - told_s < LINE_EVERY_S:
            self._untold[reason] += 1
            return
        self._told_s[reason] = now_s
        more = self._untold.pop(reason, 0)
        since = f" (and {more} more since the last line)" if more else ""
        plain = "".join(one if one.isprintable() else "?" for one in detail[:MAX_DETAIL_CHARS])
        log.warning("refused (%s): %s%s", reason, plain, since)


# How many connections there may be, of whom, before and after they have shown who they are.


class Doors:
    """Counts connections that wait outside, and those that were let in."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._waiting: Counter[str] = Counter()
        self._inside: Counter[str] = Counter()

    def knock(self, address: str) -> bool:
        """Count a new connection; false if there are too many that have not said who they are.

        On loopback, without an identity, only the number of all connections counts.
        """
        limits = self._settings
        if self._waiting.total() + self._inside.total() >= limits.max_connections:
            return False
        block = machine_of(address)
        if limits.identity is not None and (
            self._waiting.total() >= limits.max_waiting
            or self._waiting[block] >= limits.max_waiting_per_address
        ):
            return False
        self._waiting[block] += 1
        return True

    def let_go(self, address: str) -> None:
        """Count off one that waits no more, let in or not."""
        _less(self._waiting, machine_of(address))

    def enter(self, name: str) -> bool:
        """Count one of `name` in; false if there are too many of that name."""
        limit = self._settings.max_connections_per_name
        if self._settings.identity is not None and self._inside[name] >= limit:
            return False
        self._inside[name] += 1
        return True

    def leave(self, name: str) -> None:
        """Count one out."""
        _less(self._inside, name)


def _less(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
