"""What operators push: programs and datasets, as they are offered to the coordinator."""

from typing import Annotated, Final, Literal, NamedTuple

from pydantic import AfterValidator, Field

from broker.protocol.messages.values import (
    MAX_SIGNERS,
    ArtifactId,
    Piece,
    Program,
    ProgramSignature,
    TrainerInfo,
    Word,
)

MAX_PACKS: Final = 2_000  # of a dataset: their hashes fit into one message
_Size = Annotated[int, Field(ge=1, le=1 << 50)]
PushKind = Literal["program", "dataset"]


class Blob(NamedTuple):
    """Bytes that the store has under their sha256: a parcel, or a pack or layout of a dataset."""

    artifact_id: ArtifactId
    size_bytes: _Size


def _carried(trainer: TrainerInfo) -> TrainerInfo:
    if trainer.program is None:
        raise ValueError("must have a program")
    return trainer


class ProgramOffer(Piece):
    """A program as it is pushed: what its `program.toml` says, its parcel, and who vouches for it.

    What the agent goes by is in the parcel.
    """

    kind: Literal["program"] = "program"
    name: Word
    trainer: Annotated[TrainerInfo, AfterValidator(_carried)]
    signatures: Annotated[tuple[ProgramSignature, ...], Field(max_length=MAX_SIGNERS)] = ()

    @property
    def program(self) -> Program:
        """Its parcel, and what a host has to allow."""
        assert self.trainer.program is not None  # noqa: S101 - see `_carried`
        return self.trainer.program

    @property
    def digest(self) -> str:
        """The sha256 of its parcel."""
        return self.program.digest

    @property
    def size_bytes(self) -> int:
        """The size of its parcel."""
        return self.program.size_bytes

    @property
    def title(self) -> str:
        """How it is called in a manifest."""
        return f"{self.name}@{self.digest}"

    def blobs(self) -> tuple[Blob, ...]:
        """Return all that is stored of it."""
        return (Blob(self.digest, self.size_bytes),)


class DataOffer(Piece):
    """A dataset as it is pushed, see broker/programs/datasets.py.

    Hosts check the layout against the digest; the coordinator does not look into it.
    """

    kind: Literal["dataset"] = "dataset"
    name: Word
    digest: ArtifactId = Field(description="The sha256 of its listing.")
    size_bytes: Annotated[int, Field(ge=0, le=1 << 50, description="Of all files.")]
    files: Annotated[int, Field(ge=1, le=1 << 30)]
    layout: Blob
    packs: Annotated[tuple[Blob, ...], Field(max_length=MAX_PACKS)] = ()

    @property
    def title(self) -> str:
        """How it is called in a manifest."""
        return f"{self.name}@{self.digest}"

    def blobs(self) -> tuple[Blob, ...]:
        """Return all that is stored of it, in the order in which it is pushed."""
        return (*self.packs, self.layout)


Offer = Annotated[ProgramOffer | DataOffer, Field(discriminator="kind")]
