"""Programs that people push: taken in, listed, removed, and known to the manifest's reader.

A program is known once its parcel is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
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
    TrainerInfo,
)
from broker.protocol.reasons import of_program
from broker.protocol.topics import user_of
from coordinator.core import pushes
from coordinator.core.authorization import Data, refused
from coordinator.core.effects import CheckSignatures
from coordinator.core.entries import Push
from coordinator.core.state import World
from coordinator.jobs.causes import cause
from coordinator.jobs.jobs import Job
from coordinator.jobs.records import ProgramRecord, ProgramRemoved
from coordinator.jobs.states import FINAL, Event

MAX_PROGRAMS: Final = 100  # what is known of all of them fits into one answer


def on_push(world: World, client: str, ask: AskPush, now: Now) -> Data | None:
    """Take a program in; none: its signatures are checked first."""
    offer = ask.offer
    signers = tuple(one.signer for one in offer.signatures)
    if offer.program.signers != signers or {*signers} - {user_of(client).partition(":")[2]}:
        raise refused("signer", name=", ".join(signers))
    if not signers:
        return take_in(world, client, ask, now)
    world.do(CheckSignatures(client, ask, world.crl))
    return None


def take_in(world: World, client: str, ask: AskPush, now: Now) -> Data:
    """Take a program in; ask for its parcel where it is not stored yet."""
    offer, digest = ask.offer, ask.offer.program.digest
    size_bytes = offer.program.size_bytes
    pushes.check_size(world, offer, digest, size_bytes)
    is_full = digest not in world.programs and len(world.programs) >= MAX_PROGRAMS
    if is_full and not _forget_oldest(world):
        raise refused("programs", most=MAX_PROGRAMS)
    push = Push(client, offer, digest)
    is_there = digest in world.stored
    if is_there:
        _keep(world, push, now)
    else:
        pushes.begin(world, push, size_bytes, ask.chunk_bytes, now)
    return {"name": offer.name, "digest": digest, "is_there": is_there}


def _forget_oldest(world: World) -> bool:
    """Forget the oldest program that is not in use; return whether there is one."""
    for digest in world.programs:
        if not pushes.in_use(_jobs_of(world, digest)):
            _forget(world, digest)
            return True
    return False


def on_stored(world: World, artifact_id: str, now: Now) -> None:
    """A blob is stored: who pushed it is told, and a program is known now."""
    for push in pushes.stored(world, artifact_id):
        if isinstance(push.offer, ProgramOffer):
            _keep(world, push, now)


def _keep(world: World, push: Push, now: Now) -> None:
    """Remember a program as the newest of its name, with the signatures that it had before."""
    offer, digest = push.offer, push.artifact_id
    assert isinstance(offer, ProgramOffer)  # noqa: S101 - of a dataset there is no one push
    earlier = world.programs.pop(digest, None)
    offer = offer if earlier is None else _joined(offer, earlier.offer)
    record = ProgramRecord(offer, now.text(), user_of(push.client))
    world.programs[digest] = record
    trust_anew(world, digest)
    world.remember(record)
    for job in _jobs_of(world, digest):
        if job.state not in FINAL and job.spec.program != offer.program:
            spec = replace(job.spec, program=offer.program)  # others have signed it
            why = cause("keys", names=["program"])
            world.move(job, Event.CHANGED, now, record.who, why, spec=spec)
            world.unsettled = True


def trust_anew(world: World, digest: str = "") -> None:
    """Give a program, or each, to hosts again that could not use it."""
    for host in world.hosts.values():
        for one in [digest] if digest else [*host.unusable]:
            if host.unusable.pop(one, None) is not None:
                world.look_at(host.name)


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
        "hosts": [*takers[: pushes.MOST_NAMED]],
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
    record = pushes.find(world.programs.values(), ask.name, "no_program")
    pushes.refuse_use("program_in_use", ask.name, _jobs_of(world, record.digest))
    _forget(world, record.digest)
    return {"name": record.offer.name, "digest": record.digest}


def _forget(world: World, digest: str) -> None:
    del world.programs[digest]
    world.remember(ProgramRemoved(digest))


def known(world: World) -> dict[str, TrainerInfo]:
    """Return each program as a trainer, by `NAME@DIGEST`, the newest of a name last."""
    return {f"{one.offer.name}@{one.digest}": _trainer(one) for one in world.programs.values()}


def _trainer(record: ProgramRecord) -> TrainerInfo:
    offer = record.offer
    return TrainerInfo(
        hyper_schema=offer.hyper_schema, resumable=offer.program.resumable, telemetry=False,
        program=offer.program, needs=offer.needs, data=offer.data,
        inputs=offer.inputs,
    )  # fmt: skip


def _jobs_of(world: World, digest: str) -> list[Job]:
    return [job for job in world.book.all() if job.spec.program_digest() == digest]
