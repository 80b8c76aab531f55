"""Small artifacts, which come with their reports: kept in the ledger until they are files.

The commit that completes a job makes its artifact durable, too, so that nobody waits for the
flushes of a file. The file is made afterwards, and only when it is durable does the ledger let go:
after a crash at any moment the artifact is in one of them, and what is in the ledger is filed anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from broker.clock import Now
from broker.protocol.messages import NoRoom
from coordinator.core.effects import FileBundles
from coordinator.core.state import World
from coordinator.jobs.jobs import Job
from coordinator.jobs.records import BundleKept, BundlesFiled

LET_GO_S: Final = 1.0  # many together are one commit
RETRY_S: Final = 30.0
HANGS_S: Final = 30.0
AT_ONCE: Final = 64  # in memory, while the disk is at them


def on_loaded(world: World, kept: Mapping[str, int], now: Now) -> None:
    """After a restart: make files of what the ledger keeps (sizes in bytes, by id)."""
    world.stored.update(kept)
    world.unfiled.update(dict.fromkeys(kept))
    _file(world, now)


def keep(world: World, job: Job, artifact_id: str, data: bytes, now: Now) -> None:
    """Take an artifact into the ledger, and have a file made of it."""
    world.filed.pop(artifact_id, None)
    world.stored[artifact_id] = len(data)
    world.unfiled[artifact_id] = None
    world.remember(BundleKept(artifact_id, data, job.spec.model, job.spec.mode))
    _file(world, now)


def on_filed(world: World, artifact_id: str, now: Now) -> None:
    """It is a file, too: the ledger is to let go of it, soon."""
    if artifact_id not in world.unfiled:
        return
    del world.unfiled[artifact_id]
    world.filed[artifact_id] = None
    if ("filed",) not in world.timers:
        world.timers.set(("filed",), now.mono_s + LET_GO_S)
    _file(world, now)


def on_refused(world: World, artifact_id: str, now: Now) -> None:
    """The disk has refused: try again in a while, for as long as it takes."""
    if artifact_id in world.unfiled:
        world.unfiled[artifact_id] = None
        if ("unfiled",) not in world.timers:
            world.timers.set(("unfiled",), now.mono_s + RETRY_S)


def on_timer(world: World, what: str, now: Now) -> None:
    """Let go of what is `filed`; or try again with what is `unfiled`."""
    if what == "unfiled":
        _file(world, now)
    elif world.filed:
        world.remember(BundlesFiled(tuple(world.filed)))
        world.filed.clear()


def fault(world: World, now: Now) -> dict[str, JsonValue] | None:
    """Return what is wrong with the disk of the store, as a `code` with its figures; or none.

    `hangs`: it has not answered for `silent_s`; `refuses`: it takes none of the `small` results,
    which wait in the ledger; `low`: it has no room for those of `jobs`, which wait at their hosts.
    """
    small = len(world.unfiled)
    asked_s = (since_s for since_s in world.unfiled.values() if since_s is not None)
    if (silent_s := now.mono_s - min(asked_s, default=now.mono_s)) >= HANGS_S:
        return {"code": "hangs", "silent_s": round(silent_s), "small": small}
    if (lack := all_lack(world)) is not None:
        return {"code": "low", **lack.model_dump()}
    return {"code": "refuses", "small": small} if ("unfiled",) in world.timers else None


def _file(world: World, now: Now) -> None:
    """Have files made of some; the others follow, or wait for a disk that refuses."""
    idle = [artifact_id for artifact_id, since_s in world.unfiled.items() if since_s is None]
    some = idle[: max(0, AT_ONCE - (len(world.unfiled) - len(idle)))]
    if some and ("unfiled",) not in world.timers:
        world.unfiled.update(dict.fromkeys(some, now.mono_s))
        world.do(FileBundles(tuple(some)))


# Jobs whose results wait at their hosts for room on the disk of the store.


def lacks_room(world: World, artifact_id: str, lack: NoRoom, now: Now) -> None:
    """The disk has no room for an artifact; its host tries again every two minutes or sooner."""
    expected = world.expected.get(artifact_id)
    if expected is not None:
        world.no_room.pop(expected.job_id, None)
        world.no_room[expected.job_id] = lack  # the newest is the last
        world.timers.set(("summary",), now.mono_s + 0.2)


def has_room(world: World, artifact_id: str, now: Now) -> None:
    """There is room for it."""
    expected = world.expected.get(artifact_id)
    if expected is not None and world.no_room.pop(expected.job_id, None) is not None:
        world.timers.set(("summary",), now.mono_s + 0.2)


def all_lack(world: World) -> NoRoom | None:
    """Return what all of them together lack, by what the disk said last; none: nothing waits."""
    if not world.no_room:
        return None
    newest = [*world.no_room.values()][-1]
    needed_bytes = sum(lack.needed_bytes for lack in world.no_room.values())
    return newest.model_copy(update={"jobs": len(world.no_room), "needed_bytes": needed_bytes})
