"""`fleet forget`: a host that is gone for good leaves the coordinator's view, and the broker's.

Its jobs keep their histories. Should its agent come back after all, it is a new host.
"""

from __future__ import annotations

from typing import Any

from broker.clock import Now
from broker.messages import AskForget, OperatorResponse
from broker.wire import Outgoing
from coordinator.records import HostForgotten
from coordinator.world import World


def on_forget(world: World, _client: str, ask: AskForget, _now: Now) -> OperatorResponse:
    """Forget a host; refused while it is online or holds a job."""
    name = ask.host
    host = world.hosts.get(name)
    if host is None and name not in world.records:
        return _refusal(ask, "not_found", f"no host is called {name!r}; `fleet workers` shows them")
    if host is not None and host.online:
        return _refusal(ask, "refused", f"host {name} is online; stop its agent first")
    if held := [job.spec.name for job in world.held_at(name)]:
        names = ", ".join(held[:8]) + (" ..." if len(held) > 8 else "")
        text = f"host {name} holds {names}; `fleet cancel` or wait until they are lost"
        return _refusal(ask, "refused", text)
    _forget(world, name)
    return OperatorResponse(id=ask.id, ok=True, data={"host": name, "forgotten": True})


def _forget(world: World, name: str) -> None:
    world.hosts.pop(name, None)
    world.evidence.pop(name, None)
    for refused in world.holdbacks.values():
        refused.pop(name, None)
    for stop in [stop for stop in world.stops if stop[0] == name]:
        del world.stops[stop]
    world.remember(HostForgotten(name))
    # What stays on the broker would bring it back at the coordinator's next start.
    for topic in (world.topics.status(name), world.topics.capability(name)):
        world.do(Outgoing(topic, b"", retain=True))


def _refusal(ask: AskForget, code: Any, message: str) -> OperatorResponse:
    return OperatorResponse(id=ask.id, ok=False, code=code, message=message)
