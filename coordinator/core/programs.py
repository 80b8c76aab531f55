"""Who vouches for a program that is pushed, and which hosts let it in."""

from __future__ import annotations

from dataclasses import replace

from broker.clock import Now
from broker.protocol.messages import MAX_SIGNERS, ProgramOffer, ProgramsAllowed
from broker.protocol.reasons import of_program
from broker.protocol.topics import user_of
from coordinator.core import catalogue
from coordinator.core.authorization import refused
from coordinator.core.state import World
from coordinator.jobs.causes import cause
from coordinator.jobs.states import FINAL, Event


def is_signed(client: str, offer: ProgramOffer) -> bool:
    """Whether a program has signatures. Raises `RequestRefused` unless they are its client's."""
    signers = tuple(one.signer for one in offer.signatures)
    if offer.program.signers != signers or {*signers} - {user_of(client).partition(":")[2]}:
        raise refused("signer", name=", ".join(signers))
    return bool(signers)


def joined(offer: ProgramOffer, earlier: ProgramOffer) -> ProgramOffer:
    """Return an offer with the newest signature of each who has signed the same parcel."""
    signatures = {one.signer: one for one in (*earlier.signatures, *offer.signatures)}
    newest = (*signatures.values(),)[-MAX_SIGNERS:]
    program = offer.program.model_copy(update={"signers": tuple(one.signer for one in newest)})
    trainer = offer.trainer.model_copy(update={"program": program})
    return offer.model_copy(update={"trainer": trainer, "signatures": newest})


def on_signed(world: World, offer: ProgramOffer, who: str, now: Now) -> None:
    """A program is known, or others have signed it: so have its jobs' programs."""
    trust_anew(world, offer.digest)
    for job in catalogue.jobs_of(world, "program", offer.digest):
        if job.state not in FINAL and job.spec.program != offer.program:
            spec = replace(job.spec, program=offer.program)
            world.move(job, Event.CHANGED, now, who, cause("keys", names=["program"]), spec=spec)
            world.unsettled = True


def trust_anew(world: World, digest: str = "") -> None:
    """Give a program, or each, to hosts again that could not use it."""
    for host in world.hosts.values():
        for one in [digest] if digest else [*host.unusable]:
            if host.unusable.pop(one, None) is not None:
                world.look_at(host.name)


def takers(world: World) -> dict[str, list[str]]:
    """Return the hosts whose owners let a program in, by its digest, but for those that failed."""
    rules: dict[ProgramsAllowed | None, list[str]] = {}  # many hosts have the same
    for name, host in sorted(world.hosts.items()):
        if host.capability is not None:
            rules.setdefault(host.capability.programs, []).append(name)
    return {
        offer.digest: sorted(
            name for rule, hosts in rules.items() if not any(of_program(offer.program, rule))
            for name in hosts if offer.digest not in world.hosts[name].unusable
        )
        for offer in catalogue.programs(world)
    }  # fmt: skip
