"""What operators push: programs and datasets, taken in blob by blob, listed, removed.

A blob comes by the chunk stream, as an agent's artifact does, and is stored by its sha256; of each
client one at a time. The coordinator does not look into blobs: hosts check them by their hashes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import JsonValue

from broker.clock import Now
from broker.protocol.messages import (
    AskLayout,
    AskPush,
    AskPushed,
    AskRemove,
    DataOffer,
    OperatorResponse,
    ProgramOffer,
    PushKind,
    Stored,
)
from broker.protocol.topics import user_of
from coordinator.core import catalogue, downloads, programs, uploads
from coordinator.core.authorization import Data, RequestRefused, refused
from coordinator.core.effects import CheckSignatures
from coordinator.core.entries import Upload
from coordinator.core.state import World
from coordinator.jobs import titles
from coordinator.jobs.causes import cause
from coordinator.jobs.jobs import Job
from coordinator.jobs.plan_entries import DATASETS, PROGRAMS
from coordinator.jobs.records import PushedRecord, PushedRemoved
from coordinator.jobs.states import FINAL

MAX_PUSHES: Final = 8
MAX_KNOWN: Final = 100  # of each kind: what is known of all of them fits into one answer
MAX_COMING: Final = 32
COMING_S: Final = 86_400.0  # for which what has come of a push is kept
MOST_NAMED: Final = 8  # hosts, and jobs


def on_push(world: World, client: str, ask: AskPush, now: Now) -> Data | None:
    """Take a program or a dataset in; none: its signatures are checked first."""
    offer = ask.offer
    if isinstance(offer, ProgramOffer) and programs.is_signed(client, offer):
        world.do(CheckSignatures(client, ask, offer, world.crl))
        return None
    return take_in(world, client, ask, now)


def take_in(world: World, client: str, ask: AskPush, now: Now) -> Data:
    """Ask for the first blob that is not stored; if there is none, what is offered is known."""
    offer = ask.offer
    for artifact_id, size_bytes in offer.blobs():
        if world.stored.get(artifact_id, size_bytes) != size_bytes:
            raise refused("other_size", name=offer.name)
    _make_place(world, offer)
    told: Data = {"name": offer.name, "digest": offer.digest, "lacks": None}
    blob = next(catalogue.lacking(world, offer), None)
    if blob is not None:
        _expect(world, offer, now)
        mode = PROGRAMS if offer.kind == "program" else DATASETS
        cut = (blob.size_bytes, ask.chunk_bytes)
        _draw(world, Upload(blob.artifact_id, client, *cut, offer.name, mode, is_push=True), now)
        return told | {"lacks": blob.artifact_id}
    is_new = world.coming.pop(offer.title, None) is not None
    _keep(world, user_of(client), offer, now)
    return told | ({"is_there": not is_new} if offer.kind == "program" else {})


def is_on_the_way(response: OperatorResponse) -> bool:
    """Whether this answer to a push says that some blob is still lacking."""
    data: Any = response.data
    return response.ok and data["lacks"] is not None


def _make_place(world: World, offer: ProgramOffer | DataOffer) -> None:
    """Forget the oldest program that is not in use, where there are too many; no dataset."""
    known = _of_kind(world, offer.kind)
    if len(known) < MAX_KNOWN or offer.title in known:
        return
    for record in known.values() if offer.kind == "program" else ():
        if not _in_use(catalogue.jobs_of(world, offer.kind, record.offer.digest)):
            _forget(world, record)
            return
    raise refused(f"{offer.kind}s", most=MAX_KNOWN)


def _expect(world: World, offer: ProgramOffer | DataOffer, now: Now) -> None:
    """Keep what has come of a push for a while: its client may have to begin again."""
    world.coming.pop(offer.title, None)
    world.coming[offer.title] = (offer, now.mono_s + COMING_S)
    while len(world.coming) > MAX_COMING:
        del world.coming[next(iter(world.coming))]


def _draw(world: World, upload: Upload, now: Now) -> None:
    """Draw a blob from a client. Raises `RequestRefused` when too many are pushed."""
    for client, earlier in [*world.pushes.items()]:
        if earlier not in world.uploads:  # it was given up, or is pushed again
            del world.pushes[client]
    if len(world.pushes.keys() - {upload.host}) >= MAX_PUSHES:
        raise refused("pushes", most=MAX_PUSHES)
    world.pushes[upload.host] = upload.artifact_id
    uploads.receive(world, upload, now)


def on_chunk(world: World, client: str, index: int, data: bytes, now: Now) -> None:
    """Take a chunk of a blob. Raises `BadStream` when it does not fit."""
    if client in world.pushes:
        uploads.on_chunk(world, client, world.pushes[client], index, data, now)


def on_stored(world: World, artifact_id: str) -> None:
    """Tell each client that pushes this blob that it is stored."""
    for client, pushed in [*world.pushes.items()]:
        if pushed == artifact_id:
            del world.pushes[client]
            world.publish(world.topics.push_grant(client), Stored())


def _keep(world: World, who: str, offer: ProgramOffer | DataOffer, now: Now) -> None:
    """Remember what was pushed as the newest of its name; it keeps earlier signatures."""
    earlier = world.pushed.pop(offer.title, None)
    if isinstance(offer, ProgramOffer) and earlier and isinstance(earlier.offer, ProgramOffer):
        offer = programs.joined(offer, earlier.offer)
    record = world.pushed[offer.title] = PushedRecord(offer, now.text(), who)
    world.remember(record)
    if isinstance(offer, ProgramOffer):
        programs.on_signed(world, offer, who, now)


def on_pushed(world: World, _client: str, ask: AskPushed, _now: Now) -> Data:
    """Return a row for each program or dataset, oldest first: who pushed it, its jobs and hosts."""
    jobs = Counter(digest for job in world.book.all() for digest in job.spec.digests(ask.kind))
    hosts = (programs.takers if ask.kind == "program" else _holders)(world)
    records = _of_kind(world, ask.kind).values()
    return {"pushed": [_row(record, jobs, hosts) for record in records]}


def _row(
    record: PushedRecord, jobs: Counter[str], hosts: Mapping[str, list[str]]
) -> dict[str, JsonValue]:
    offer = record.offer
    of_kind: Data = {"files": offer.files} if isinstance(offer, DataOffer) else {
        "signers": [*offer.program.signers],
        "environment": offer.program.environment,
    }  # fmt: skip
    its_hosts = hosts.get(offer.digest, [])
    return {
        "name": offer.name,
        "digest": offer.digest,
        "size_bytes": offer.size_bytes,
        **of_kind,
        "pushed_at": record.at,
        "pushed_by": record.who,
        "jobs": jobs[offer.digest],
        "hosts": [*its_hosts[:MOST_NAMED]],
        "host_count": len(its_hosts),
    }


def _holders(world: World) -> dict[str, list[str]]:
    """Return the hosts that have said that they hold a dataset, by its digest."""
    found: dict[str, list[str]] = {}
    for name, host in sorted(world.hosts.items()):
        for digest in host.holdings():
            found.setdefault(digest, []).append(name)
    return found


def on_layout(world: World, client: str, ask: AskLayout, now: Now) -> Data:
    """Begin to send a dataset's layout."""
    offer = _find(world, "dataset", ask.name).offer
    layout = offer.blobs()[-1]
    if layout.artifact_id not in world.stored:
        raise refused("no_layout", name=offer.name)
    sent = downloads.begin(world, client, *layout, now)
    return {"name": offer.name, "digest": offer.digest, **sent}


def on_remove(world: World, _client: str, ask: AskRemove, _now: Now) -> Data:
    """Forget a program or a dataset; what no other one has of it goes with the next clean-up."""
    record = _find(world, ask.kind, ask.name)
    offer = record.offer
    if names := _in_use(catalogue.jobs_of(world, ask.kind, offer.digest)):
        some: list[JsonValue] = [*names[:MOST_NAMED]]
        raise refused(f"{ask.kind}_in_use", name=ask.name, jobs=some, count=len(names))
    _forget(world, record)
    return {"name": offer.name, "digest": offer.digest}


def _of_kind(world: World, kind: PushKind) -> dict[str, PushedRecord]:
    return {title: one for title, one in world.pushed.items() if one.offer.kind == kind}


def _find(world: World, kind: PushKind, text: str) -> PushedRecord:
    """Return the record that a text means. Raises `RequestRefused`."""
    known = _of_kind(world, kind)
    found = titles.meant(text, known)
    if len(found) != 1:
        raise RequestRefused(cause(f"no_{kind}", **titles.not_one(text, known)), "not_found")
    return known[found[0]]


def _in_use(jobs: Iterable[Job]) -> list[str]:
    """Return the names of those of some jobs that are not over, or that the manifest has.

    Without what its jobs name, a manifest cannot be read again.
    """
    return [
        job.spec.name for job in jobs
        if job.state not in FINAL or (job.in_plan and not job.submitted_by)
    ]  # fmt: skip


def _forget(world: World, record: PushedRecord) -> None:
    del world.pushed[record.offer.title]
    world.remember(PushedRemoved(record.offer.title))
