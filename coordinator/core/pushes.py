"""What operators' clients push: blobs of programs and datasets, one of each client at a time.

A blob comes by the chunk stream, as an agent's artifact does, and is stored by its sha256.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from broker.clock import Now
from broker.protocol.messages import DataOffer, ProgramOffer, Stored
from coordinator.core import uploads
from coordinator.core.authorization import RequestRefused, refused
from coordinator.core.entries import Push, Upload
from coordinator.core.state import World
from coordinator.jobs import titles
from coordinator.jobs.causes import cause
from coordinator.jobs.jobs import Job
from coordinator.jobs.records import DatasetRecord, ProgramRecord
from coordinator.jobs.states import FINAL

MAX_PUSHES: Final = 8
MOST_NAMED: Final = 8  # hosts, and jobs

R = TypeVar("R", bound=ProgramRecord | DatasetRecord)


def begin(world: World, push: Push, size_bytes: int, chunk_bytes: int, now: Now) -> None:
    """Draw a blob from a client. Raises `RequestRefused` when too many are pushed."""
    for other, earlier in [*world.pushes.items()]:
        if earlier.artifact_id not in world.uploads:  # it was given up, or is pushed again
            del world.pushes[other]
    if len(world.pushes.keys() - {push.client}) >= MAX_PUSHES:
        raise refused("pushes", most=MAX_PUSHES)
    world.pushes[push.client] = push
    upload = Upload(push.artifact_id, push.client, size_bytes, chunk_bytes, is_push=True)
    uploads.receive(world, upload, now)


def check_size(
    world: World, offer: ProgramOffer | DataOffer, artifact_id: str, size_bytes: int
) -> None:
    """Refuse an offer by which a stored blob has another size than it has."""
    if world.stored.get(artifact_id, size_bytes) != size_bytes:
        raise refused("other_size", name=offer.name)


def on_chunk(world: World, client: str, index: int, data: bytes, now: Now) -> None:
    """Take a chunk of a blob. Raises `BadStream` when it does not fit."""
    push = world.pushes.get(client)
    if push is not None:
        uploads.on_chunk(world, client, push.artifact_id, index, data, now)


def stored(world: World, artifact_id: str) -> Iterator[Push]:
    """Tell each client that pushes this blob that it is stored; yield their pushes."""
    for client, push in [*world.pushes.items()]:
        if push.artifact_id == artifact_id:
            del world.pushes[client]
            world.publish(world.topics.push_grant(client), Stored())
            yield push


def find(records: Iterable[R], text: str, no_such: str) -> R:
    """Return the record that a text means. Raises `RequestRefused` with the code `no_such`."""
    known = {f"{one.offer.name}@{one.digest}": one for one in records}
    found = titles.meant(text, known)
    if len(found) != 1:
        raise RequestRefused(cause(no_such, **titles.not_one(text, known)), "not_found")
    return known[found[0]]


def in_use(jobs: Iterable[Job]) -> list[str]:
    """Return the names of those of some jobs that are not over, or that the manifest has.

    Without what its jobs name, a manifest cannot be read again.
    """
    return [
        job.spec.name for job in jobs
        if job.state not in FINAL or (job.in_plan and not job.submitted_by)
    ]  # fmt: skip


def refuse_use(code: str, name: str, jobs: Iterable[Job]) -> None:
    """Refuse to remove what jobs need that are not over, or the manifest."""
    if names := in_use(jobs):
        raise refused(code, name=name, jobs=[*names[:MOST_NAMED]], count=len(names))
