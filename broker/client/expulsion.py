"""Ends the connection that a revoked certificate still has, on brokers that do not end it.

A broker ends a connection when another one with the same client id comes (MQTT 3.1.1, 3.1.4-2). The
client ids of hosts and the coordinator are known, so who has the CA can take their place for a
moment; the broker refuses the revoked certificate afterwards. On RabbitMQ and NATS a connection
under another client id goes on.

The end of a connection publishes its will: a presence that stays `online` is another connection's.
"""

from __future__ import annotations

import contextlib
import queue
import tempfile
import time
from collections.abc import Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Final

from broker.client.link import Link, LinkSettings
from broker.errors import BadMessage
from broker.pki import certificates as certs
from broker.pki import identity as ids
from broker.pki.ca import Authority
from broker.protocol.link_events import Connected, Incoming, LinkEvent
from broker.protocol.messages import STATUS, decode
from broker.protocol.topics import Topics
from broker.system.address import Address

HOLD_S: Final = 6.0  # a host that is let in comes back within `LinkSettings.return_cap_s`
AGAIN_S: Final = 4.0  # at most, until the place is taken again: or its host would wait longer, too
PATIENCE_S: Final = 20.0
MAX_LOST: Final = 2
LASTS_S: Final = 60.0  # of the certificate that takes the place


class Outcome(Enum):
    """The result."""

    OUT = auto()  # it has no connection under its usual client id, and did not get another
    BACK = auto()  # the broker lets it in still
    ELSEWHERE = auto()  # it is connected, and not where its place was taken
    UNREACHABLE = auto()


def expel(
    authority: Authority, addresses: Sequence[Address], topics: Topics, name: str, now_s: float
) -> tuple[Outcome, str]:
    """Take the place of `name` for some seconds; return the outcome, and where or why."""
    with tempfile.TemporaryDirectory(prefix="fleet-revoke-") as folder:
        key = certs.new_key()
        made = authority.temporary(key.public_key(), name, now_s, LASTS_S)
        place = Path(folder) / "identity"
        ids.write_identity(place, authority.pem, made, certs.key_pem(key))
        identity = ids.Identity(place, name, now_s, now_s + LASTS_S)
        settings = LinkSettings(
            addresses, topics.client_id(name), [(topics.status(name), 1)],
            backoff_base_s=AGAIN_S, backoff_cap_s=AGAIN_S, tls=identity.context,
        )  # fmt: skip
        events: queue.SimpleQueue[LinkEvent] = queue.SimpleQueue()
        link = Link(settings, events.put)
        link.start()
        try:
            return _hold(events, len(addresses))
        finally:
            link.stop()


def _hold(events: queue.SimpleQueue[LinkEvent], addresses: int) -> tuple[Outcome, str]:
    """Follow a link until the place is held, or lost twice: the broker may read its list late."""
    deadline_s = time.monotonic() + PATIENCE_S
    connected, refused, lost, why = False, 0, 0, f"no answer in {PATIENCE_S:.0f} s"
    held_s, online = 0.0, False  # until when it is to be held (monotonic)
    while (left_s := (held_s if connected else deadline_s) - time.monotonic()) > 0:
        try:
            event = events.get(timeout=left_s)
        except queue.Empty:
            break
        if isinstance(event, Incoming):
            online = _is_online(event.payload)
        elif isinstance(event, Connected):
            connected, held_s = True, time.monotonic() + HOLD_S
        else:
            why = str(event)
            lost, refused = lost + connected, refused + (not connected)
            connected = online = False
        if lost >= MAX_LOST or (not lost and refused >= addresses):
            break
    if connected:
        return (Outcome.ELSEWHERE if online else Outcome.OUT), ""
    return (Outcome.BACK if lost else Outcome.UNREACHABLE), why


def _is_online(payload: bytes) -> bool:
    """Tell whether a presence says online."""
    with contextlib.suppress(BadMessage):
        return decode(STATUS, payload).state == "online"
    return False
