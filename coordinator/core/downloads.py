"""How an operator's client gets an artifact, and a host a checkpoint of its job.

It is the chunk stream with the roles turned round. A client asks first, a host was told of the
checkpoint when it was given the job: its first grant begins the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from pydantic import JsonValue

from broker.clock import Now, rfc3339
from broker.protocol.link_events import Outgoing
from broker.protocol.messages import AskFetch, Grant, GrantMessage
from broker.stream.stream import SendChunk, Sender, chunk_size
from coordinator.core import authorization, catalogue, successors
from coordinator.core import effects as fx
from coordinator.core.authorization import Data, RequestRefused, refused
from coordinator.core.entries import Download
from coordinator.core.finding import find, others
from coordinator.core.state import World
from coordinator.jobs.causes import Cause
from coordinator.jobs.jobs import Job
from coordinator.jobs.records import Result

MAX_DOWNLOADS: Final = 16
IDLE_S: Final = 60.0


def on_fetch(world: World, client: str, ask: AskFetch, now: Now) -> Data | None:
    """Tell a client what it will get; none: the ledger is asked first, see `on_results`."""
    job = find(world, ask.job)
    artifact_id = job.artifact_id
    size_bytes = world.stored.get(artifact_id or "", 0)  # 0: its file was emptied
    if artifact_id and size_bytes and ask.attempt in {None, job.attempt}:
        return _begin(world, client, ask.attempt, job, artifact_id, size_bytes, now)
    world.do(fx.FindResults(client, ask, job.job_id, artifact_id))
    return None


def on_results(world: World, event: fx.ResultsFound, now: Now) -> None:
    """It is known what a job's attempts have brought: what is wanted goes, or is said not to."""
    asked = event.asked
    client, request_id, attempt = asked.client, asked.ask.id, asked.ask.attempt
    job = world.book.get(asked.job_id)
    if job is None:
        return  # it is asked again, and then there is no such job
    found = next((one for one in event.results if one.attempt == attempt), None)
    if found is not None and found.is_there and found.artifact_id and found.size_bytes:
        try:
            data = _begin(world, client, attempt, job, found.artifact_id, found.size_bytes, now)
            response = authorization.given(request_id, data)
        except RequestRefused as refusal:
            response = refusal.response(request_id)
    else:
        why = why_not(job, attempt, event.results, world.settings.keep_results_s, now)
        response = RequestRefused(why, "not_found").response(request_id)
    authorization.reply(world, client, response)


def why_not(
    job: Job, attempt: int | None, results: Sequence[Result], keep_s: float, now: Now
) -> Cause:
    """Return why there is nothing to fetch of a job, or of an attempt, and what there is.

    It lacks the `file` in the store or an `artifact`; or the `attempt`, its `result`, or that is
    `gone`; `kept_until` is when it was deleted, if its time was over.
    """
    wanted = next((one for one in results if one.attempt == attempt), None)
    figures: dict[str, JsonValue] = {}
    if attempt is None:
        lacks = "artifact" if job.artifact_id is None else "file"
    elif wanted is not None:
        lacks = "gone"
        until = wanted.kept_until
        is_over = until is not None and until <= rfc3339(now.wall_s)
        figures = {"set_aside_at": wanted.set_aside_at, "kept_until": until if is_over else None}
    else:
        lacks = "attempt" if attempt > job.attempt else "result"
    return {
        "code": "no_result",
        "lacks": lacks,
        "name": job.spec.name,
        "state": job.state.value,
        "attempt": attempt,
        "attempts": job.attempt,
        "there": [one.attempt for one in results if one.is_there],
        "keep_s": keep_s,
        **figures,
    }


def _begin(
    world: World,
    client: str,
    attempt: int | None,
    job: Job,
    artifact_id: str,
    size_bytes: int,
    now: Now,
) -> Data:
    return {
        "job_id": job.job_id,
        "name": job.spec.name,
        "model": job.spec.model,
        "mode": job.spec.mode,
        "attempt": attempt,
        "others": others(world, job),
        **begin(world, client, artifact_id, size_bytes, now),
    }


def begin(world: World, client: str, artifact_id: str, size_bytes: int, now: Now) -> Data:
    """Begin to send a stored artifact to a client; return what it is told of that."""
    if client not in world.downloads and _count(world, of_hosts=False) >= MAX_DOWNLOADS:
        raise refused("downloads", most=MAX_DOWNLOADS)
    chunk_bytes = chunk_size(size_bytes)
    sender = Sender(size_bytes, chunk_bytes)
    topic_of = partial(world.topics.download_chunk, client)
    world.downloads[client] = Download(artifact_id, sender, now.mono_s, topic_of)
    world.timers.set(("download", client), now.mono_s + IDLE_S)
    return {"artifact_id": artifact_id, "size_bytes": size_bytes, "chunk_bytes": chunk_bytes}


def on_grant(world: World, receiver: str, grant: GrantMessage, now: Now) -> None:
    """Whoever downloads says what is missing."""
    download = world.downloads.get(receiver)
    if download is None:
        return  # it asks anew when nothing comes
    if isinstance(grant, Grant):
        download.last_s = now.mono_s
        _send(world, receiver, download, download.sender.on_grant(grant, now.mono_s))
    else:
        _end(world, receiver)


def on_checkpoint_grant(
    world: World, host: str, artifact_id: str, grant: GrantMessage, now: Now
) -> None:
    """A host says what it misses of what comes with a job that it was given: see `_is_due`."""
    receiver = f"{host}/{artifact_id}"  # no client's user is a host
    if receiver not in world.downloads:
        size_bytes = world.stored.get(artifact_id)
        due = any(_is_due(world, job, artifact_id) for job in world.book.held_by(host))
        if not size_bytes or not due:
            return  # it asks again, and goes without in the end
        topic_of = partial(world.topics.checkpoint_chunk, host, artifact_id)
        if _count(world, of_hosts=True) >= world.settings.max_fetches:
            world.do(Outgoing(topic_of(0), b"", 0))  # it waits, and asks again
            return
        sender = Sender(size_bytes, chunk_size(size_bytes))
        world.downloads[receiver] = Download(artifact_id, sender, now.mono_s, topic_of, host)
    on_grant(world, receiver, grant, now)


def _count(world: World, *, of_hosts: bool) -> int:
    return sum(bool(one.host) is of_hosts for one in world.downloads.values())


def _is_due(world: World, job: Job, artifact_id: str) -> bool:
    """Whether a host may fetch this for a job: its program, checkpoint, datasets and inputs."""
    return (
        artifact_id == job.spec.program_digest()
        or (job.checkpoint is not None and job.checkpoint.artifact_id == artifact_id)
        or catalogue.has_blob(world, job.spec, artifact_id)
        or artifact_id in successors.artifacts(world, job)
    )


def on_timer(world: World, receiver: str, now: Now) -> None:
    """Send again what seems lost; forget one who has gone."""
    download = world.downloads.get(receiver)
    if download is None:
        return
    if now.mono_s - download.last_s >= IDLE_S:
        _end(world, receiver)
    else:
        _send(world, receiver, download, download.sender.on_timer(now.mono_s))


def _end(world: World, receiver: str) -> None:
    del world.downloads[receiver]
    world.timers.cancel(("download", receiver))


def _send(world: World, receiver: str, download: Download, chunks: Sequence[SendChunk]) -> None:
    for chunk in chunks:
        topic = download.topic_of(chunk.index)
        world.do(fx.SendChunk(topic, download.artifact_id, chunk.offset, chunk.length))
    deadline_s = download.sender.next_deadline()
    idle_s = download.last_s + IDLE_S
    world.timers.set(
        ("download", receiver), idle_s if deadline_s is None else min(deadline_s, idle_s)
    )
