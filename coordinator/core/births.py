"""Births that have come in part, and hosts that are asked to state theirs again.

Any part of a birth may be lost: its heartbeat goes at QoS 0, and a broker whose queue is full drops
the rest, too. Without it a host would not be known before its next heartbeat, half a minute later.
Of a fleet that comes back at once nearly all would be asked for what is on its way. So nobody is
asked while births pass, within reason, and then some at a time: an answer has 14 KB.
"""

from __future__ import annotations

from typing import Final

from broker.clock import Now
from broker.protocol.messages import Rebirth
from coordinator.core.state import World
from coordinator.jobs.hosts import Host

ASK_AFTER_S: Final = 5.0
QUIET_S: Final = 2.0  # since a birth has passed: what is missing by then is hardly on its way
CROWD_A_HOST_S: Final = 0.005  # longer at most, however many pass
AGAIN_S: Final = 10.0  # until the same host may be asked again
AT_ONCE: Final = 200
EVERY_S: Final = 0.25
_DUE: Final = ("births",)


def expect(world: World, host: Host, now: Now) -> None:
    """The rest of a host's birth is to come."""
    if host.name not in world.births and ("reborn", host.name) not in world.timers:
        world.births[host.name] = now.mono_s
        if _DUE not in world.timers:
            world.timers.set(_DUE, now.mono_s + ASK_AFTER_S)


def on_passing(world: World, name: str, now: Now) -> None:
    """Part of a birth has come that nobody had asked for."""
    if ("reborn", name) not in world.timers:
        world.birth_s = now.mono_s


def ask(world: World, host: Host, now: Now) -> None:
    """Have a host state its birth now."""
    world.timers.set(("reborn", host.name), now.mono_s + AGAIN_S)
    world.publish(world.topics.request(host.name), Rebirth(id=world.new_id()))


def on_timer(world: World, now: Now) -> None:
    """Ask those that have been awaited for long enough, some of them."""
    asked = 0
    while world.births:
        name, since_s = next(iter(world.births.items()))
        host = world.hosts.get(name)
        if host is not None and (host.early is not None or not host.has_joined()):
            due_s = _due_s(world, since_s)
            if asked == AT_ONCE or due_s > now.mono_s:
                world.timers.set(_DUE, max(due_s, now.mono_s + EVERY_S))
                return
            ask(world, host, now)
            asked += 1
        del world.births[name]


def _due_s(world: World, since_s: float) -> float:
    """Return when one that is awaited since then may be asked (monotonic)."""
    earliest_s = since_s + ASK_AFTER_S
    if world.birth_s is None:
        return earliest_s
    latest_s = earliest_s + CROWD_A_HOST_S * len(world.hosts)
    return max(earliest_s, min(world.birth_s + QUIET_S, latest_s))
