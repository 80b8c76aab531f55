"""How an operator's client gets an artifact, and a host a checkpoint of its job.

It is the chunk stream with the roles turned round. A client asks first, a host was told of the
checkpoint when it was given the job: its first grant begins the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from pydantic import JsonValue

from broker.clock import Now
from broker.messages import AskFetch, GrantMessage, OperatorResponse
from broker.stream import Done, Refused, Sender, chunk_size
from broker.stream import SendChunk as Send
from coordinator.effects import SendChunk
from coordinator.jobs import Job
from coordinator.world import Download, World

MAX_DOWNLOADS: Final = 16
IDLE_S: Final = 60.0


def on_fetch(
    world: World, client: str, ask: AskFetch, job: Job, others: list[JsonValue], now: Now
) -> OperatorResponse:
    """Tell a client what it will get; its grants draw the chunks. `others`: of the same name."""
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
    chunk_bytes = chunk_size(size_bytes)
    sender = Sender(size_bytes, chunk_bytes)
    topic_of = partial(world.topics.download_chunk, client)
    world.downloads[client] = Download(artifact_id, sender, now.mono_s, topic_of)
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
            "chunk_bytes": chunk_bytes,
            "others": others,
        },
    )


def on_grant(world: World, receiver: str, grant: GrantMessage, now: Now) -> None:
    """Whoever downloads says what is missing."""
    download = world.downloads.get(receiver)
    if download is None:
        return  # it asks anew when nothing comes
    download.last_s = now.mono_s
    _perform(world, receiver, download, download.sender.on_grant(grant, now.mono_s))


def on_checkpoint_grant(
    world: World, host: str, artifact_id: str, grant: GrantMessage, now: Now
) -> None:
    """A host says what it misses of the checkpoint of a job that it has been given."""
    receiver = f"{host}/{artifact_id}"  # no client's user is a host
    if receiver not in world.downloads:
        size_bytes = world.stored.get(artifact_id)
        due = any(
            job.checkpoint is not None and job.checkpoint.artifact_id == artifact_id
            for job in world.held_at(host)
        )
        if size_bytes is None or not due or len(world.downloads) >= MAX_DOWNLOADS:
            return  # it asks again, and goes without in the end
        sender = Sender(size_bytes, chunk_size(size_bytes))
        topic_of = partial(world.topics.checkpoint_chunk, host, artifact_id)
        world.downloads[receiver] = Download(artifact_id, sender, now.mono_s, topic_of)
    on_grant(world, receiver, grant, now)


def on_timer(world: World, receiver: str, now: Now) -> None:
    """Send again what seems lost; forget one who has gone."""
    download = world.downloads.get(receiver)
    if download is None:
        return
    if now.mono_s - download.last_s >= IDLE_S:
        del world.downloads[receiver]
        return
    _perform(world, receiver, download, download.sender.on_timer(now.mono_s))


def _perform(world: World, receiver: str, download: Download, effects: Sequence[object]) -> None:
    for effect in effects:
        if isinstance(effect, Send):
            topic = download.topic_of(effect.index)
            world.do(SendChunk(topic, download.artifact_id, effect.offset, effect.length))
        elif isinstance(effect, Done | Refused):
            world.downloads.pop(receiver, None)
            world.timers.cancel(("download", receiver))
            return
    deadline_s = download.sender.next_deadline()
    idle_s = download.last_s + IDLE_S
    world.timers.set(
        ("download", receiver), idle_s if deadline_s is None else min(deadline_s, idle_s)
    )
