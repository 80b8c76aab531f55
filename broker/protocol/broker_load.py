"""How near the embedded broker is to its limit, in words."""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.protocol.messages import BrokerLoad

BUSY: Final = 0.6  # of the one core that it can use: beyond it, peaks wait
LATE_S: Final = 0.25
CROWDED: Final = 0.8  # of the connections that it takes
HELD_UP: Final = (
    "something holds it up: see what else its machine does, and whether the broker, or the "
    "machine, was stopped for a while"
)
REMEDY: Final = "move to mosquitto, which bears more: docs/reference/brokers.md"


class Strain(NamedTuple):
    """What follows "the broker is", and what to do about it."""

    what: str
    remedy: str


def strain(load: BrokerLoad) -> Strain | None:
    """Return what is wrong with the embedded broker; none while all is well."""
    reasons = []
    if load.busy >= BUSY:
        rate = f"{load.messages_s:,.0f} messages and {load.bytes_s / 1e6:,.1f} MB a second"
        reasons.append(f"it takes {load.busy:.0%} of a core for {rate}")
    if load.clients >= CROWDED * load.max_clients:
        reasons.append(f"it has {load.clients:,} of at most {load.max_clients:,} connections")
    if reasons:
        return Strain(f"near its limit: {', and '.join(reasons)}", REMEDY)
    if load.lag_p99_s >= LATE_S:
        what = f"late by up to {load.lag_p99_s:.1f} s, though it takes {load.busy:.0%} of a core"
        return Strain(what, HELD_UP)
    return None
