"""Sends a program of one's own to the coordinator: packed, signed, only what is missing of it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from broker.programs.packing import pack
from broker.programs.program_file import read_program
from broker.protocol import messages as m
from coordinator.client.dataset_tree import Found
from coordinator.client.pushing import Connect, Sending, Transfer
from coordinator.manifest.builtin import builtin_trainers


@dataclass(frozen=True, slots=True)
class Pushed:
    """A program that the coordinator has. `sent`: its parcel was not there before."""

    name: str
    digest: str
    size_bytes: int
    signer: str
    sent: bool

    @property
    def title(self) -> str:
        """How it is called in a manifest."""
        return f"{self.name}@{self.digest}"


def push(connect: Connect, folder: Path, transfer: Transfer) -> Pushed:
    """Send the program in `folder`, signed where the client has a certificate.

    Raises `ConfigError` for a faulty program, and what `Sending.send` raises.
    """
    program = read_program(folder, builtin_trainers())
    with tempfile.TemporaryDirectory(prefix="fleet-push-") as aside:
        parcel = Path(aside) / "parcel.tar.zst"
        packed = pack(folder, parcel)
        digest, size_bytes = packed.artifact_id, packed.size_bytes
        signatures = _signatures(connect, program.name, digest)
        signers = tuple(one.signer for one in signatures)
        trainer = m.TrainerInfo(
            hyper_schema=program.hyper_schema(), resumable=program.resumable, telemetry=False,
            data=tuple(program.data), inputs=tuple(program.inputs),
            program=m.Program(
                digest=digest, size_bytes=size_bytes, signers=signers,
                environment=program.environment, resumable=program.resumable,
            ),
            needs=m.Needs(**program.needs.model_dump()),
        )  # fmt: skip
        offer = m.ProgramOffer(name=program.name, trainer=trainer, signatures=signatures)
        files = {digest: [Found(parcel.name, parcel, size_bytes)]}
        sent = Sending(offer, files, connect).send(transfer)
    return Pushed(program.name, digest, size_bytes, "".join(signers), bool(sent))


def _signatures(connect: Connect, name: str, digest: str) -> tuple[m.ProgramSignature, ...]:
    identity = connect().identity  # not entered, it makes no connection
    if identity is None:
        return ()
    from broker.programs.signatures import sign  # with a certificate alone: it loads 11 MiB

    return (sign(identity.folder, name, digest),)
