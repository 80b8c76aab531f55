"""Jobs whose results wait at their hosts for room on the disk of the store."""

from __future__ import annotations

from broker.clock import Now
from broker.protocol.messages import NoRoom
from coordinator.core.state import World

TELL_S = 0.2


def lacks(world: World, artifact_id: str, lack: NoRoom, now: Now) -> None:
    """The disk has no room for an artifact; its host tries again every two minutes or sooner."""
    expected = world.expected.get(artifact_id)
    if expected is not None:
        world.no_room.pop(expected.job_id, None)
        world.no_room[expected.job_id] = lack  # the newest is the last
        _tell(world, now)


def has(world: World, artifact_id: str, now: Now) -> None:
    """There is room for it."""
    expected = world.expected.get(artifact_id)
    if expected is not None and world.no_room.pop(expected.job_id, None) is not None:
        _tell(world, now)


def of_all(world: World) -> NoRoom | None:
    """Return what all of them together lack, by what the disk said last; none: nothing waits."""
    if not world.no_room:
        return None
    newest = [*world.no_room.values()][-1]
    needed_bytes = sum(lack.needed_bytes for lack in world.no_room.values())
    return newest.model_copy(update={"jobs": len(world.no_room), "needed_bytes": needed_bytes})


def _tell(world: World, now: Now) -> None:
    if ("summary",) not in world.timers:
        world.timers.set(("summary",), now.mono_s + TELL_S)
