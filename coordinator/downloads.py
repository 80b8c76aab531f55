"""How an operator's client gets an artifact: the chunk stream with the roles turned round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.clock import Now
from broker.messages import AskFetch, GrantMessage, OperatorResponse
from broker.stream import Done, Refused, Sender
from broker.stream import SendChunk as Send
from coordinator.effects import SendChunk
from coordinator.jobs import Job
from coordinator.world import Download, World

CHUNK_BYTES: Final = 256 * 1024
MAX_DOWNLOADS: Final = 16
IDLE_S: Final = 60.0


def on_fetch(world: World, client: str, ask: AskFetch, job: Job, now: Now) -> OperatorResponse:
    """Tell a client what it will get; its grants draw the chunks."""
    artifact_id = job.artifact_id
    if artifact_id is None or artifact_id not in world.stored:
        message = f"job {job.spec.name} is {job.state.value} and has no artifact"
        if artifact_id is not None:
            message = (
                f"the artifact of job {job.spec.name} is gone from the store; "
                "`fleet requeue` makes it again"
            )
        return OperatorResponse(id=ask.id, ok=False, code="not_found", message=message)
    if client not in world.downloads and len(world.downloads) >= MAX_DOWNLOADS:
        message = f"{MAX_DOWNLOADS} downloads are under way; try again in a minute"
        return OperatorResponse(id=ask.id, ok=False, code="refused", message=message)
    size_bytes = world.stored[artifact_id]
    world.downloads[client] = Download(artifact_id, Sender(size_bytes, CHUNK_BYTES), now.mono_s)
    world.timers.set(("download", client), now.mono_s + IDLE_S)
    return OperatorResponse(
        id=ask.id,
        ok=True,
        data={
            "job_id": job.job_id,
            "name": job.spec.name,
            "model": job.spec.model,
            "mode": job.spec.mode,
            "artifact_id": artifact_id,
            "size_bytes": size_bytes,
            "chunk_bytes": CHUNK_BYTES,
        },
    )


def on_grant(world: World, client: str, grant: GrantMessage, now: Now) -> None:
    """A client says what it misses."""
    download = world.downloads.get(client)
    if download is None:
        return  # it asks anew when nothing comes
    download.last_s = now.mono_s
    _perform(world, client, download, download.sender.on_grant(grant, now.mono_s))


def on_timer(world: World, client: str, now: Now) -> None:
    """Send again what seems lost; forget a client that has gone."""
    download = world.downloads.get(client)
    if download is None:
        return
    if now.mono_s - download.last_s >= IDLE_S:
        del world.downloads[client]
        return
    _perform(world, client, download, download.sender.on_timer(now.mono_s))


def _perform(world: World, client: str, download: Download, effects: Sequence[object]) -> None:
    for effect in effects:
        if isinstance(effect, Send):
            world.do(
                SendChunk(client, download.artifact_id, effect.index, effect.offset, effect.length)
            )
        elif isinstance(effect, Done | Refused):
            world.downloads.pop(client, None)
            world.timers.cancel(("download", client))
            return
    deadline_s = download.sender.next_deadline()
    idle_s = download.last_s + IDLE_S
    world.timers.set(
        ("download", client), idle_s if deadline_s is None else min(deadline_s, idle_s)
    )
