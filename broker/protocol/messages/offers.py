"""What operators push: programs and datasets, as they are offered to the coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, NamedTuple

from pydantic import AfterValidator, Field, JsonValue

from broker.protocol.messages.values import (
    MAX_SIGNERS,
    ArtifactId,
    DataNames,
    Needs,
    Piece,
    Program,
    ProgramSignature,
    Word,
    finite,
)

MAX_PACKS: Final = 2_000  # of a dataset: their hashes fit into one message
_Size = Annotated[int, Field(ge=1, le=1 << 50)]


class ProgramOffer(Piece):
    """A program as it is pushed: what its `program.toml` says, its parcel, and who vouches for it.

    What the agent goes by is in the parcel.
    """

    name: Word
    program: Program
    hyper_schema: Annotated[dict[str, JsonValue], AfterValidator(finite)] = Field(
        description="JSON Schema of its parameters."
    )
    data: DataNames = Field(
        default=(), description="The datasets that it reads; a job says which each is."
    )
    inputs: DataNames = Field(
        default=(), description="The results of other jobs that it reads, if a job names them."
    )
    needs: Needs = Field(default=Needs(), description="A job may ask for more, not for less.")
    signatures: Annotated[tuple[ProgramSignature, ...], Field(max_length=MAX_SIGNERS)] = ()


class Blob(NamedTuple):
    """Bytes of a dataset that the store has under their sha256: a pack, or the layout."""

    artifact_id: ArtifactId
    size_bytes: _Size


class DataOffer(Piece):
    """A dataset as it is pushed, see broker/programs/datasets.py.

    Hosts check the layout against the digest; the coordinator does not look into it.
    """

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

    def blobs(self) -> Iterator[Blob]:
        """Yield all that is stored of it, in the order in which it is pushed."""
        yield from self.packs
        yield self.layout
