"""The chunk stream: what its receiver says. The chunks themselves are raw."""

from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter

from broker.protocol.messages.values import DEFERRED, Wire


class Grant(Wire):
    """What the receiver still misses, as half-open ranges of chunk indexes, and its window.

    A chunk is the unit in which ranges are counted. A message may carry up to `span_chunks` chunks
    that follow each other. The list of ranges is cut short at a limit; nothing is said about
    indexes at or past `horizon`.
    """

    state: Literal["receiving"] = "receiving"
    missing: Annotated[tuple[tuple[int, int], ...], Field(max_length=256)]
    horizon: int = Field(ge=0)
    window_chunks: int = Field(ge=0, le=1 << 20)
    span_chunks: int = Field(default=1, ge=1, le=1024)


class Stored(Wire):
    """A download is complete: the receiver wants nothing more."""

    state: Literal["stored"] = "stored"


class Rejected(Wire):
    """The artifact could not be taken: check the bundle, and report the job anew."""

    state: Literal["rejected"] = "rejected"
    reason: Literal["corrupt", "disk", "no_room"]


GrantMessage = Annotated[Grant | Stored | Rejected, Field(discriminator="state")]
GRANT: Final[TypeAdapter[GrantMessage]] = TypeAdapter(GrantMessage, config=DEFERRED)
