"""Programs that people push: taken in, listed, removed, and known to the manifest's reader.

A parcel comes by the chunk stream, as an agent's artifact does, and is stored by its sha256. The
program is known once its parcel is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from broker.clock import Now
from broker.protocol.messages import (
    MAX_SIGNERS,
    AskPrograms,
    AskPush,
    AskRemove,
    ProgramOffer,
    ProgramsAllowed,
    Stored,
    TrainerInfo,
)
from broker.protocol.reasons import of_program
from broker.protocol.topics import user_of
from coordinator.core import uploads
from coordinator.core.authorization import Data, RequestRefused, refused
from coordinator.core.entries import Push, Upload
from coordinator.core.state import World
from coordinator.jobs.causes import cause
from coordinator.jobs.jobs import Job
from coordinator.jobs.records import ProgramRecord, ProgramRemoved
from coordinator.jobs.states import FINAL

MAX_PROGRAMS: Final = 100  # what is known of all of them fits into one answer
MOST_NAMED: Final = 8  # hosts, and jobs
MAX_PUSHES: Final = 8


def on_push(world: World, client: str, ask: AskPush, now: Now) -> Data:
    """Take a program in; ask for its parcel where it is not stored yet."""
    offer, digest = ask.offer, ask.offer.program.digest
    signers = tuple(one.signer for one in offer.signatures)
    if offer.program.signers != signers or {*signers} - {user_of(client).partition(":")[2]}:
        raise refused("signer", name=", ".join(signers))
    if world.stored.get(digest, offer.program.size_bytes) != offer.program.size_bytes:
        raise refused("program_size", name=offer.name)
    is_full = digest not in world.programs and len(world.programs) >= MAX_PROGRAMS
    if is_full and not _forget_oldest(world):
        raise refused("programs", most=MAX_PROGRAMS)
    push = Push(client, offer)
    is_there = digest in world.stored
    if is_there:
        _keep(world, push, now)
    else:
        for other, earlier in [*world.pushes.items()]:
            if earlier.digest not in world.uploads:  # it has been given up, or is pushed again
                del world.pushes[other]
        if len(world.pushes.keys() - {client}) >= MAX_PUSHES:
            raise refused("pushes", most=MAX_PUSHES)
        world.pushes[client] = push
        size_bytes = offer.program.size_bytes
        upload = Upload(digest, client, size_bytes, ask.chunk_bytes, is_push=True)
        uploads.receive(world, upload, now)
    return {"name": offer.name, "digest": digest, "is_there": is_there}


def _forget_oldest(world: World) -> bool:
    """Forget the oldest program that no waiting or running job has; return whether there is one."""
    for digest in world.programs:
        if not _unfinished(world, digest):
            _forget(world, digest)
            return True
    return False


def on_chunk(world: World, client: str, index: int, data: bytes, now: Now) -> None:
    """Take a chunk of a parcel. Raises `BadStream` when it does not fit."""
    push = world.pushes.get(client)
    if push is not None:
        uploads.on_chunk(world, client, push.digest, index, data, now)


def on_stored(world: World, digest: str, now: Now) -> None:
    """A parcel is stored: the program is known, and whoever pushed it is told."""
    for client, push in list(world.pushes.items()):
        if push.digest == digest:
            del world.pushes[client]
            _keep(world, push, now)
            world.publish(world.topics.push_grant(client), Stored())


def _keep(world: World, push: Push, now: Now) -> None:
    """Remember a program as the newest of its name, with the signatures that it had before."""
    earlier = world.programs.pop(push.digest, None)
    offer = push.offer if earlier is None else _joined(push.offer, earlier.offer)
    record = ProgramRecord(offer, now.text(), user_of(push.client))
    world.programs[push.digest] = record
    world.remember(record)


def _joined(offer: ProgramOffer, earlier: ProgramOffer) -> ProgramOffer:
    """Return an offer with the newest signature of each who has signed the same parcel."""
    signatures = {one.signer: one for one in (*earlier.signatures, *offer.signatures)}
    newest = (*signatures.values(),)[-MAX_SIGNERS:]
    program = offer.program.model_copy(update={"signers": tuple(one.signer for one in newest)})
    return offer.model_copy(update={"program": program, "signatures": newest})


def on_programs(world: World, _client: str, _ask: AskPrograms, _now: Now) -> Data:
    """Return a row for each program, oldest first: who pushed it, and who takes it."""
    jobs = Counter(job.spec.program_digest() for job in world.book.all())
    rules: dict[ProgramsAllowed | None, list[str]] = {}  # many hosts have the same
    for name, host in sorted(world.hosts.items()):
        if host.capability is not None:
            rules.setdefault(host.capability.programs, []).append(name)
    return {
        "programs": [
            _row(record, jobs[record.digest], _takers(record, rules))
            for record in world.programs.values()
        ]
    }


def _row(record: ProgramRecord, jobs: int, takers: list[str]) -> dict[str, JsonValue]:
    offer = record.offer
    return {
        "name": offer.name,
        "digest": record.digest,
        "size_bytes": offer.program.size_bytes,
        "signers": [*offer.program.signers],
        "environment": offer.program.environment,
        "pushed_at": record.at,
        "pushed_by": record.who,
        "jobs": jobs,
        "hosts": [*takers[:MOST_NAMED]],
        "host_count": len(takers),
    }


def _takers(
    record: ProgramRecord, rules: Mapping[ProgramsAllowed | None, list[str]]
) -> list[str]:  # fmt: skip
    """Return the hosts whose owners let a program in; `rules` has the hosts by what they allow."""
    program = record.offer.program
    return sorted(
        name for rule, hosts in rules.items() if not any(of_program(program, rule))
        for name in hosts
    )  # fmt: skip


def on_remove(world: World, _client: str, ask: AskRemove, _now: Now) -> Data:
    """Forget a program; its parcel goes with the next clean-up."""
    record = find(world, ask.name)
    if names := _unfinished(world, record.digest):
        raise refused(
            "program_in_use", name=ask.name, jobs=[*names[:MOST_NAMED]], count=len(names)
        )  # fmt: skip
    _forget(world, record.digest)
    return {"name": record.offer.name, "digest": record.digest}


def _forget(world: World, digest: str) -> None:
    del world.programs[digest]
    world.remember(ProgramRemoved(digest))


def _unfinished(world: World, digest: str) -> list[str]:
    """Return the names of the jobs of a program that are not over."""
    return [job.spec.name for job in _jobs_of(world, digest) if job.state not in FINAL]


def find(world: World, text: str) -> ProgramRecord:
    """Return the program that `NAME`, `NAME@DIGEST` or a digest's beginning means.

    A name alone means the newest. Raises `RequestRefused`.
    """
    name, _, digest = text.rpartition("@")
    programs = [*world.programs.values()]
    found = [one for one in programs if one.digest.startswith(digest)]
    if name:
        found = [one for one in found if one.offer.name == name]
    else:
        found = [one for one in programs if one.offer.name == text][-1:] or found
    if len(found) != 1:
        there = [f"{one.offer.name}@{one.digest[:12]}" for one in found or programs]
        why = cause("no_program", name=text, count=len(found), there=[*there[-8:]])
        raise RequestRefused(why, "not_found")
    return found[0]


def known(world: World) -> dict[str, TrainerInfo]:
    """Return each program as a trainer, by `NAME@DIGEST`, the newest of a name last."""
    return {f"{one.offer.name}@{one.digest}": _trainer(one) for one in world.programs.values()}


def _trainer(record: ProgramRecord) -> TrainerInfo:
    offer = record.offer
    return TrainerInfo(
        hyper_schema=offer.hyper_schema, resumable=offer.program.resumable, telemetry=False,
        program=offer.program, needs=offer.needs,
    )  # fmt: skip


def _jobs_of(world: World, digest: str) -> list[Job]:
    return [job for job in world.book.all() if job.spec.program_digest() == digest]
