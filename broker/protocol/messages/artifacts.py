"""The messages of the chunk stream; the chunks themselves are raw."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter

from broker.protocol.messages.values import (
    DEFERRED,
    MAX_CHUNK_BYTES,
    Attempt,
    Id,
    JobId,
    Line,
    Wire,
)


class Offer(Wire):
    """An artifact that the sender has; the receiver answers with a grant.

    A chunk is the unit in which ranges are counted; a message may carry several.
    """

    job_id: JobId
    attempt: Attempt
    instance: Id
    size_bytes: Annotated[int, Field(ge=1, le=1 << 50)]
    chunk_bytes: Annotated[int, Field(ge=1024, le=MAX_CHUNK_BYTES)]


class Grant(Wire):
    """What the receiver still misses, as half-open ranges of chunk indexes, and its window.

    The list of ranges is cut short at a limit; nothing is said about indexes at or past `horizon`.
    A message may carry up to `span_chunks` chunks that follow each other.
    """

    state: Literal["receiving"] = "receiving"
    missing: Annotated[tuple[tuple[int, int], ...], Field(max_length=256)]
    horizon: int = Field(ge=0)
    window_chunks: int = Field(ge=0, le=1 << 20)
    span_chunks: int = Field(default=1, ge=1, le=1024)


class Stored(Wire):
    """The artifact is in the store, hashed and fsynced; the sender may forget it."""

    state: Literal["stored"] = "stored"


class Rejected(Wire):
    """The artifact is not taken. `final`: drop it; otherwise report the job finished anew."""

    state: Literal["rejected"] = "rejected"
    reason: Line
    final: bool


GrantMessage = Annotated[Grant | Stored | Rejected, Field(discriminator="state")]


OFFER: Final = TypeAdapter(Offer)
GRANT: Final[TypeAdapter[GrantMessage]] = TypeAdapter(GrantMessage, config=DEFERRED)
