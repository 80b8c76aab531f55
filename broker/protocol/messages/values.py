"""What payloads are made of: bounded values, and the bases of all messages."""

from __future__ import annotations

import json
from typing import Annotated, Final, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue
from pydantic_core import to_json

from broker.protocol.topics import HEX_PATTERN, HOST_PATTERN

T = TypeVar("T")

VERSION: Final = 1
_FINITE: Final = json.JSONEncoder(allow_nan=False)
MAX_PAYLOAD_BYTES: Final = 256 * 1024
MAX_CHUNK_BYTES: Final = 1024 * 1024
MAX_LISTED: Final = 256  # jobs in a heartbeat
MAX_SMALL_BYTES: Final = 8 * 1024  # of an artifact that travels with its report

HostName = Annotated[str, Field(pattern=rf"^{HOST_PATTERN}$")]
JobId = Annotated[str, Field(pattern=rf"^{HEX_PATTERN}$")]
ArtifactId = Annotated[str, Field(pattern=rf"^{HEX_PATTERN}$")]
Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Line = Annotated[str, Field(max_length=2000)]
Text = Annotated[str, Field(max_length=16_000)]
Pem = Annotated[str, Field(max_length=8192)]
Bytes = Annotated[int, Field(ge=0, le=1 << 62)]
Attempt = Annotated[int, Field(ge=1, le=1 << 31)]
Seq = Annotated[int, Field(ge=0, le=1 << 62)]
Receipt = Annotated[
    str,
    Field(
        pattern=r"^([0-9a-f]{32})?$",
        description="The coordinator's own word that it gave this attempt to this host.",
    ),
]
Share = Annotated[float, Field(ge=0, le=1)]


def finite(value: T) -> T:
    """Return `value`, or raise ValueError where a number in it is not finite."""
    # `allow_inf_nan` does not reach into a JsonValue that is parsed from JSON.
    try:
        if value and _may_not_be(value):  # most often it is an empty mapping
            _FINITE.encode(value)
    except (ValueError, RecursionError):
        raise ValueError("must hold finite numbers only") from None
    return value


def _may_not_be(value: object) -> bool:
    """Look quickly whether there may be a number that is not finite; it may be a word as well."""
    try:
        text = to_json(value, inf_nan_mode="constants")
    except ValueError:
        return True
    return b"NaN" in text or b"Infinity" in text


Metrics = Annotated[dict[str, JsonValue], Field(max_length=64), AfterValidator(finite)]
Hyper = Annotated[dict[str, JsonValue], Field(max_length=64), AfterValidator(finite)]
JobStateName = Literal["pending", "claimed", "running", "completed", "failed", "cancelled"]
Mode = Literal["realistic", "oracle"]
SplitRecipe = Literal["host", "sample", "time"]
FIELD_NAMES: Final[set[str]] = set()  # of every model that is loaded: the words of our own
# Of an adapter: built when it is first used. Models are, too, under a lock of pydantic's own.
DEFERRED: Final = ConfigDict(defer_build=True)


class Piece(BaseModel):
    """Base of what stands inside a payload: immutable, tolerant of fields it does not know."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True
    )  # fmt: skip

    @classmethod
    def __pydantic_init_subclass__(cls, **_: object) -> None:
        FIELD_NAMES.update(cls.model_fields)


class Wire(Piece):
    """Base of every payload: it has a version as well."""

    v: int = Field(default=VERSION, ge=1, description="Version of the message format.")


class Needs(Piece):
    """What a job needs of its host; judged again by the agent when it starts the job."""

    require_cuda: bool = False
    prefer_cuda: bool = False
    min_vram_gib: float | None = Field(default=None, ge=0)
    min_ram_gib: float | None = Field(default=None, ge=0)
    min_cores: int | None = Field(default=None, ge=1)
