"""Programs in a simulation: what an operator pushes, whom hosts trust, what must hold of it."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.programs.parcels import Parcels
from agent.programs.programs import Programs
from agent.programs.settings import ProgramSettings
from broker.programs.unusable import Unusable
from broker.protocol.link_events import Incoming, LinkEvent, Outgoing
from broker.protocol.messages import (
    GRANT,
    OPERATOR_RESPONSE,
    AskPush,
    Assign,
    Grant,
    Needs,
    Program,
    ProgramOffer,
    ProgramSignature,
    Stored,
    TrainerInfo,
    decode,
    encode,
)
from broker.protocol.topic_table import Kind
from broker.stream.stream import SendChunk, Sender
from broker.system.files import read, write_atomically
from coordinator.core.effects import JournalRead

from .network import Link
from .nodes import ROOT, TOPICS, Machine
from .trainer_checks import Violation

if TYPE_CHECKING:
    from .run import Run
    from .scenario import HostSpec, JobPlan

NAME: Final = "fit"
SIGNERS: Final = ("op", "other")  # the second pushes it again when the first is revoked
REVOKED: Final = "op is revoked"
PARCEL: Final = b"a program".ljust(40_000, b".")
PROGRAM: Final = Program(
    digest=hashlib.sha256(PARCEL).hexdigest(),
    size_bytes=len(PARCEL),
    signers=("op",),
    resumable=True,
)
SIGNATURES: Final = {
    signer: ProgramSignature(signer=signer, certificate="-", value=signer) for signer in SIGNERS
}
AGAIN_S: Final = 15.0  # longer than a sender waits before it sends again
REPLACED_S: Final = 60.0  # after the revocation
CHUNK_BYTES: Final = 1024  # there is no window for a larger one


@dataclass(frozen=True, slots=True)
class Plan:
    """When the program is pushed, and when its signer's certificate is revoked, if it is."""

    push_s: float
    revoke_s: float | None


def draw(
    seed: int, hosts: tuple[HostSpec, ...], jobs: tuple[JobPlan, ...]
) -> tuple[Plan | None, tuple[HostSpec, ...], tuple[JobPlan, ...]]:
    """Some fleets have a program: some jobs are of it, and some hosts let it in."""
    rng = random.Random(f"programs {seed}")
    if rng.random() < 0.75:
        return None, hosts, jobs
    first, *rest = hosts  # the first one takes it in any case, so that each job has a place
    lets_in = [replace(first, lets_in="pinned")]
    lets_in += [replace(host, lets_in=rng.choice(("", "pinned", "signed"))) for host in rest]
    plan = Plan(
        rng.choice((0.0, 20.0, 100.0)) * rng.random(),
        rng.uniform(0.0, 200.0) if rng.random() < 0.5 else None,
    )
    drawn = tuple(_of_program(job) if rng.random() < 0.5 else job for job in jobs)
    return plan, tuple(lets_in), drawn


def _of_program(job: JobPlan) -> JobPlan:
    if not job.resumable or job.spec.allowed_hosts:
        return job
    spec = replace(job.spec, model=NAME, mode="", needs=Needs(), program=PROGRAM)
    return replace(job, spec=spec)


def of_host(machine: Machine, host: HostSpec) -> Programs:
    """Return the programs of a host: the real ones, on its disk."""
    settings = ProgramSettings.model_construct(
        pinned=(PROGRAM.digest,) if host.lets_in == "pinned" else (),
        signed_by=SIGNERS if host.lets_in == "signed" else (),
        sandbox="none",
    )
    return Programs(settings, parcels(machine, "programs"), verify)


def parcels(machine: Machine, folder: str) -> Parcels:
    """Return a host's folder of bundles, each of which is unpacked to one file."""
    disk = machine.disk
    return Parcels(
        ROOT / folder, 0.0, disk,
        lambda part, into: write_atomically(disk, into, read(disk, part)),
    )  # fmt: skip


def verify(signature: ProgramSignature, _name: str, _digest: str, crl: str) -> None:
    """Check a signature, in the simulation's stead of a CA."""
    if signature != SIGNATURES.get(signature.signer):
        raise Unusable("bad-signature")
    if crl == REVOKED and signature == SIGNATURES["op"]:
        raise Unusable("signer-revoked")


def check_started(machine: Machine, host: HostSpec, assign: Assign) -> None:
    """A trainer starts: its program is whole, and may be here."""
    if assign.program is None:
        return
    path = Path(ROOT / "programs" / assign.program.digest)
    if machine.disk.bytes_of(path) != PARCEL:
        raise Violation("whole program", f"{machine.name} runs another", assign.job_id)
    if not host.lets_in:
        raise Violation("allowed program", f"{machine.name} lets none in", assign.job_id)
    signers = {one.signer for one in assign.signatures}
    if host.lets_in == "signed" and assign.crl == REVOKED and signers <= {"op"}:
        raise Violation("allowed program", f"{machine.name}: its signer is revoked", assign.job_id)


def start(run: Run, plan: Plan) -> None:
    """Have the program pushed; later its signer is revoked, perhaps, and another pushes it."""
    Pusher(run, "op").start(plan.push_s)
    if plan.revoke_s is not None:
        run.timeline.after(plan.revoke_s, lambda: _revoke(run))
        Pusher(run, "other").start(plan.revoke_s + REPLACED_S)


def _revoke(run: Run) -> None:
    """The coordinator reads it in the CA's folder, again after each restart."""
    run.coordinator.crl = REVOKED
    if run.coordinator.up:
        run.coordinator.put(JournalRead((), REVOKED))


class Pusher:
    """Somebody at a terminal who pushes the program, and does not give up before it is known."""

    def __init__(self, run: Run, signer: str) -> None:
        self._run = run
        self._signer = signer
        self._client = f"operator:{signer}/pushing"
        self._new_id = run.id_maker(f"push-{signer}")
        self._sender = Sender(len(PARCEL), CHUNK_BYTES)
        self._is_done = False
        self._link = Link(
            run.broker, f"push-{signer}", TOPICS.for_operator(self._client), self._inbox, None,
            self._new_id, random.Random(f"push {signer} {run.scenario.seed}"),
        )  # fmt: skip

    def start(self, at_s: float) -> None:
        """Connect, and push when it is time."""
        self._link.start()
        self._run.timeline.after(at_s, self._ask)

    def _ask(self) -> None:
        if self._is_done:
            return
        self._offer()
        self._send(self._sender.on_timer(self._run.timeline.now_s))
        self._run.timeline.after(AGAIN_S, self._ask)

    def _offer(self) -> None:
        program = PROGRAM.model_copy(update={"signers": (self._signer,)})
        trainer = TrainerInfo(hyper_schema={}, telemetry=False, program=program)
        offer = ProgramOffer(name=NAME, trainer=trainer, signatures=(SIGNATURES[self._signer],))
        ask = AskPush(id=self._new_id(), offer=offer, chunk_bytes=CHUNK_BYTES)
        self._link.publish(Outgoing(TOPICS.operator_request(self._client), encode(ask)))

    def _inbox(self, event: LinkEvent) -> None:
        if not isinstance(event, Incoming):
            return
        topic = TOPICS.parse(event.topic)
        if topic.kind is Kind.OPERATOR_RESPONSE:
            data: Any = decode(OPERATOR_RESPONSE, event.payload).data
            self._is_done |= bool(data and data["lacks"] is None)
        elif topic.kind is Kind.PUSH_GRANT:
            grant = decode(GRANT, event.payload)
            if isinstance(grant, Stored):
                self._offer()
            if isinstance(grant, Grant):
                self._send(self._sender.on_grant(grant, self._run.timeline.now_s))

    def _send(self, chunks: Sequence[SendChunk]) -> None:
        for chunk in chunks:
            data = PARCEL[chunk.offset : chunk.offset + chunk.length]
            topic = TOPICS.push_chunk(self._client, chunk.index)
            self._link.publish(Outgoing(topic, data, 0))
