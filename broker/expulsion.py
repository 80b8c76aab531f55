"""Ends the connection that a revoked certificate has left behind, on brokers that do not end it.

A broker ends a connection when another one with the same client id comes (MQTT 3.1.1, 3.1.4-2).
Hosts and the coordinator have ids that follow from their names, so whoever has the CA can take
their place for a moment. Whoever stays away then is out: the broker knows what was revoked.
"""

from __future__ import annotations

import queue
import random
import tempfile
import time
from collections.abc import Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Final

from broker import identity as ids
from broker.address import Address
from broker.ca import Authority
from broker.link import Link, LinkSettings
from broker.machine import new_id
from broker.wire import Connected, Disconnected, LinkEvent

HOLD_S: Final = 3.0  # a host that is let in comes back within a second
PATIENCE_S: Final = 12.0  # the embedded broker reads its list anew within one
REACH_S: Final = 5.0
LASTS_S: Final = 60.0  # of the certificate that takes the place


class Outcome(Enum):
    """What came of it."""

    OUT = auto()  # it has no connection, and did not get another
    BACK = auto()  # the broker lets it in still
    UNREACHABLE = auto()


def expel(
    authority: Authority, addresses: Sequence[Address], name: str, now_s: float
) -> tuple[Outcome, str]:
    """Take the place of `name`, a host or the coordinator, for some seconds.

    Returns what came of it, and where, or why the broker was not reached. `now_s` is the time since
    the epoch. Raises OSError when no private file can be written.
    """
    with tempfile.TemporaryDirectory(prefix="fleet-revoke-") as folder:
        key = ids.new_key()
        made = authority.stand_in(key.public_key(), name, now_s, LASTS_S)
        place = Path(folder) / "identity"
        ids.write_identity(place, authority.pem, made, ids.key_pem(key))
        identity = ids.Identity(place, name, now_s, now_s + LASTS_S)
        settings = LinkSettings(
            addresses, name, [], backoff_base_s=0.1, backoff_cap_s=0.5, tls=identity.context
        )
        events: queue.SimpleQueue[LinkEvent] = queue.SimpleQueue()
        link = Link(
            settings,
            events.put,
            will=None,
            new_id=new_id,
            rng=random.Random(),  # noqa: S311 - jitter, no secret
        )
        link.start()
        try:
            return _hold(events)
        finally:
            link.stop()


def _hold(events: queue.SimpleQueue[LinkEvent]) -> tuple[Outcome, str]:
    begun_s = time.monotonic()
    connected, was, why = False, False, f"no answer in {REACH_S:.0f} s"
    while (left_s := begun_s + (PATIENCE_S if was else REACH_S) - time.monotonic()) > 0:
        try:
            event = events.get(timeout=HOLD_S if connected else left_s)
        except queue.Empty:
            if connected:
                return Outcome.OUT, ""
            break
        connected = isinstance(event, Connected)
        was = was or connected
        if isinstance(event, Disconnected):
            why = event.why
    return (Outcome.BACK if was else Outcome.UNREACHABLE), why
