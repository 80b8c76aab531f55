"""The messages of the chunk stream; the chunks themselves are raw."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from broker.messages.values import MAX_CHUNK_BYTES, Attempt, Id, JobId, Line, Wire


class Offer(Wire):
    """An artifact that the sender has; the receiver answers with a grant."""

    job_id: JobId
    attempt: Attempt
    instance: Id
    size_bytes: Annotated[int, Field(ge=1, le=1 << 50)]
    chunk_bytes: Annotated[int, Field(ge=1024, le=MAX_CHUNK_BYTES)]


class Grant(Wire):
    """What the receiver still misses, as half-open ranges of chunk indexes, and its window.

    The list of ranges is cut short at a limit; nothing is said about indexes at or past `horizon`.
    """

    state: Literal["receiving"] = "receiving"
    missing: Annotated[tuple[tuple[int, int], ...], Field(max_length=256)]
    horizon: int = Field(ge=0)
    window_chunks: int = Field(ge=1, le=4096)


class Stored(Wire):
    """The artifact is in the store, hashed and fsynced; the sender may forget it."""

    state: Literal["stored"] = "stored"


class Rejected(Wire):
    """The artifact is not taken. `final`: drop it; otherwise report the job finished anew."""

    state: Literal["rejected"] = "rejected"
    reason: Line
    final: bool


GrantMessage = Annotated[Grant | Stored | Rejected, Field(discriminator="state")]
