"""Programs that tests push, plan and run: their digests, trainers, and what is offered of them."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from broker.protocol import messages as m

OLD, NEW, OTHER = "a1a" + "0" * 61, "a1b" + "0" * 61, "c3" * 32
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "lr": {"type": "number", "maximum": 1},
        "epochs": {"type": "integer", "default": 20},
    },
    "required": ["lr"],
    "additionalProperties": False,
}
INPUTS: Final = ("weights", "fit", "w", "x")
PARCEL: Final = b"x" * 1500
DIGEST: Final = hashlib.sha256(PARCEL).hexdigest()


def program(digest: str = DIGEST, signer: str = "", **more: Any) -> m.Program:
    """A program whose parcel has the size of `PARCEL`."""
    return m.Program(
        digest=digest, size_bytes=len(PARCEL), signers=(signer,) if signer else (), **more
    )


def trainer(digest: str, signer: str = "", needs: m.Needs | None = None) -> m.TrainerInfo:
    """A program as the manifest's reader knows it."""
    return m.TrainerInfo(
        hyper_schema=SCHEMA, telemetry=False, program=program(digest, signer),
        needs=needs or m.Needs(), inputs=INPUTS,
    )  # fmt: skip


def offer(
    name: str = "vision", digest: str = DIGEST, signer: str = "",
    signature: m.ProgramSignature | None = None,
) -> m.ProgramOffer:  # fmt: skip
    """What is pushed; with a signer's signature, by default one that does not count."""
    signature = signature or m.ProgramSignature(signer=signer, certificate="pem", value="AA==")
    signatures = (signature,) if signer else ()
    return m.ProgramOffer(name=name, trainer=trainer(digest, signer), signatures=signatures)
