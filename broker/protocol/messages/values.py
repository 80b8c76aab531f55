"""What payloads are made of: bounded values, the bases of all messages, encoding and decoding."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
)

from broker.errors import BadMessage
from broker.protocol.topics import HEX_PATTERN, HOST_PATTERN

T = TypeVar("T")

VERSION: Final = 1
_FINITE: Final = json.JSONEncoder(allow_nan=False)
MAX_PAYLOAD_BYTES: Final = 256 * 1024
MAX_CHUNK_BYTES: Final = 1024 * 1024
CHUNK_BYTES: Final = 16 * 1024  # of all artifacts but the largest
MAX_LISTED: Final = 256  # jobs in a heartbeat
MAX_SMALL_BYTES: Final = 8 * 1024  # of an artifact that travels with its report
LONGEST_S: Final = 1e9  # 31 years: beyond that somebody has reckoned wrongly, and no date holds it

HostName = Annotated[str, Field(pattern=rf"^{HOST_PATTERN}$")]
JobId = Annotated[str, Field(pattern=rf"^{HEX_PATTERN}$")]
ArtifactId = Annotated[str, Field(pattern=rf"^{HEX_PATTERN}$")]
Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Short = Annotated[str, Field(max_length=200)]
Line = Annotated[str, Field(max_length=2000)]
Text = Annotated[str, Field(max_length=16_000)]
Pem = Annotated[str, Field(max_length=8192)]
Bytes = Annotated[int, Field(ge=0, le=1 << 62)]
ChunkBytes = Annotated[int, Field(ge=1024, le=MAX_CHUNK_BYTES)]
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
        if value:
            _FINITE.encode(value)
    except (ValueError, RecursionError):
        raise ValueError("must hold finite numbers only") from None
    return value


Metrics = Annotated[dict[str, JsonValue], Field(max_length=64), AfterValidator(finite)]
Hyper = Annotated[dict[str, JsonValue], Field(max_length=64), AfterValidator(finite)]
JobStateName = Literal["pending", "claimed", "running", "completed", "failed", "cancelled"]
Mode = Literal["realistic", "oracle"]
SplitRecipe = Literal["host", "sample", "time", "folds"]
MAX_FOLDS: Final = 1_000
# 0 is the usual one, and is left out of a message.
FoldNumber = Annotated[int, Field(ge=0, le=MAX_FOLDS, exclude_if=lambda number: not number)]
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


def omitted(default: Any, description: str | None = None) -> Any:
    """Return a field of a `Piece` that a message has only where it is not `default`."""
    return Field(
        default=default, exclude_if=lambda value: value == default, description=description
    )


class Needs(Piece):
    """What a job needs of its host; judged again by the agent when it starts the job."""

    require_cuda: bool = False
    prefer_cuda: bool = False
    min_vram_gib: float | None = Field(default=None, ge=0)
    min_ram_gib: float | None = Field(default=None, ge=0)
    min_cores: int | None = Field(default=None, ge=1)
    min_disk_gib: float | None = Field(default=None, ge=0)


MAX_SIGNERS: Final = 8
MAX_DATA: Final = 16  # datasets of a job


class Program(Piece):
    """A program that travels to its host as a parcel: which one, and what a host has to allow."""

    digest: ArtifactId = Field(description="The sha256 of its parcel.")
    size_bytes: Annotated[int, Field(ge=1, le=1 << 50)]
    signers: Annotated[tuple[Short, ...], Field(max_length=MAX_SIGNERS)] = Field(
        default=(), description="The operators who signed it."
    )
    environment: Literal["none", "uv"] = Field(
        default="none", description="none: the agent's own interpreter; uv: made from a lock file."
    )
    resumable: bool = Field(
        default=False, description="It keeps checkpoints, and goes on from them."
    )


class Dataset(Piece):
    """A tree of files that a job reads, and where its layout is; broker/programs/datasets.py."""

    name: Word = Field(description="What the job calls it: `train` of `--data.train=DIR`.")
    digest: ArtifactId = Field(description="The sha256 of its listing.")
    size_bytes: Annotated[int, Field(ge=0, le=1 << 50)]
    layout: ArtifactId = Field(description="The sha256 of its layout.")
    layout_bytes: Annotated[int, Field(ge=1, le=1 << 50)]


class Input(Piece):
    """The artifact of another job, which the agent unpacks for the trainer."""

    name: Word = Field(description="What the job calls it: `weights` of `--input.weights=DIR`.")
    artifact_id: ArtifactId
    size_bytes: Annotated[int, Field(ge=1, le=1 << 50)]


DataNames = Annotated[tuple[Word, ...], Field(max_length=MAX_DATA)]


class TrainerInfo(Piece):
    """A trainer that is installed on the host."""

    hyper_schema: Annotated[dict[str, JsonValue], AfterValidator(finite)] = Field(
        description="JSON Schema of its hyperparameters."
    )
    resumable: bool = Field(
        default=True, description="It keeps checkpoints, and goes on from them."
    )
    telemetry: bool = Field(
        default=True, description="It reads prepared data, in the mode that its job says."
    )
    version: Short | None = Field(
        default="",
        description="Hash of its code and of what else it reads; empty: it is built in, or its "
        "files cannot be read.",
    )
    data: DataNames = omitted(
        (), "The datasets that it reads; each job of a program has to name all of them."
    )
    inputs: DataNames = omitted(
        (), "The results of other jobs that a program reads; a job names some of them."
    )
    program: Program | None = omitted(
        None, "The fleet brings it to the host. Answers of the coordinator have it."
    )
    needs: Needs = omitted(Needs(), "What each of its jobs needs at least.")


class ProgramSignature(Piece):
    """Who vouches for a parcel: broker/programs/signatures.py says what is signed."""

    signer: Short = Field(description="`alice` of the identity `operator:alice`.")
    certificate: Pem = Field(description="Of the signer.")
    value: Short = Field(description="ECDSA with SHA-256, in base64.")


class ProgramsAllowed(Piece):
    """Which programs a host's owner lets in."""

    pinned: Annotated[tuple[ArtifactId, ...], Field(max_length=1000)] = ()
    signed_by: Annotated[tuple[Short, ...], Field(max_length=100)] = ()
    unsigned: bool = omitted(False, "Also what nobody signed.")
    environments: Annotated[tuple[Short, ...], Field(max_length=8)] = ("none",)
    sandbox: Short = Field(default="bwrap", description="none: a program runs as the agent does.")


class Amount(NamedTuple):
    """What a host has so much of, by the names of fields.

    `need` is a job's, in GiB; `called` is for people. `free` is what a host has measured, `total`
    what it has in all, both in bytes; empty: nobody tells. `of_gpu`: they are fields of `Gpu`.
    `least_gib` is needed by a job that asks for nothing.
    """

    need: str
    called: str
    free: str
    total: str = ""
    of_gpu: bool = False
    least_gib: float | None = None


AMOUNTS: Final[Mapping[str, Amount]] = {
    "vram": Amount("min_vram_gib", "VRAM", "vram_free_bytes", "vram_total_bytes", of_gpu=True),
    "ram": Amount("min_ram_gib", "RAM", "ram_available_bytes", "ram_total_bytes"),
    # On a full disk no trainer can be started, which would cost each job its tries.
    "disk": Amount("min_disk_gib", "disk space", "disk_free_bytes", least_gib=0.1),
}


FaultCode = Literal[
    "not-allowed", "no-signature", "bad-certificate", "other-ca", "no-operator", "other-signer",
    "not-valid-yet", "expired", "bad-crl", "signer-revoked", "bad-signature", "no-uv", "slow",
    "not-installed", "not-sent", "bad-content", "too-large", "no-room", "disk", "gone", "leaving",
    "internal",
]  # fmt: skip


class Fault(Piece):
    """Why a program, dataset or input cannot be used, or a result not be bundled."""

    code: Word = Field(description="Of these: " + ", ".join(get_args(FaultCode)) + ".")
    signer: Short = omitted("", "As the signature says.")
    name: Short = omitted("", "In the certificate, or errno.")
    day: Short = omitted("", "Of the certificate's validity.")
    limit_s: float | None = omitted(None)
    limit_bytes: Bytes | None = omitted(None)
    needed_bytes: Bytes | None = omitted(None)
    free_bytes: Bytes | None = omitted(None)
    quoted: Line = omitted("", "What uv printed.")

    def told(self) -> dict[str, JsonValue]:
        """Return it as JSON values."""
        return self.model_dump(mode="json")


class Why(Piece):
    """Why an agent takes no jobs, or gives one back: a code, with figures."""

    code: Word
    by: Short = omitted("", "owner, manifest, or who asked.")
    until: Short = omitted("", "ISO 8601, by the host's clock.")
    input_idle_s: float | None = omitted(None)
    gpu_users: Annotated[tuple[Short, ...], Field(max_length=3)] = omitted(())
    others_percent: float | None = omitted(None, "Of all cores.")
    text: Line = omitted("", "What the trainer said.")
    fault: Fault | None = omitted(None, "Of program, dataset and input.")

    def told(self) -> dict[str, JsonValue]:
        """Return it as JSON values."""
        return self.model_dump(mode="json")


Holds = Annotated[tuple[Why, ...], Field(max_length=4)]


class Objection(Piece):
    """Why a host cannot start a job now: a code, with figures (sizes in GiB)."""

    code: Word
    needed: float | None = None
    available: float | None = None
    total: float | None = None
    key: Line = ""
    said: Line = ""
    holds: Holds = Field(default=(), description="Of `refuses`.")

    def figures(self) -> dict[str, JsonValue]:
        """Return what there is beside the code."""
        return self.model_dump(mode="json", exclude={"code"}, exclude_defaults=True)


# What a person looks for in a line of a trace.
_FIRST: Final = (
    "v", "type", "verdict", "name", "state", "host", "job_id", "attempt", "why", "reason",
    "reasons", "error",
)  # fmt: skip
_JSON: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def encode(message: Wire) -> bytes:
    """Return the JSON of a message; what it is comes first, for whoever reads a trace."""
    if _is_in_order(type(message)):
        return message.__pydantic_serializer__.to_json(message)
    fields = message.model_dump(mode="json")
    head = {key: fields[key] for key in _FIRST if key in fields}
    return _JSON.encode(head | fields).encode()


def together(messages: Sequence[bytes], limit_bytes: int) -> Iterator[bytes]:
    """Yield encoded messages in payloads: one alone as it is, several as a list.

    A list has no more than `limit_bytes`, unless a single message has.
    """
    some: list[bytes] = []
    size_bytes = 1
    for message in messages:
        size_bytes += len(message) + 1
        if some and size_bytes > limit_bytes:
            yield _list_of(some)
            some, size_bytes = [], len(message) + 2
        some.append(message)
    if some:
        yield _list_of(some)


def _list_of(messages: list[bytes]) -> bytes:
    return messages[0] if len(messages) == 1 else b"[" + b",".join(messages) + b"]"


@cache
def _is_in_order(kind: type[Wire]) -> bool:
    """Whether the fields stand in the order of a trace, as those of the frequent messages do."""
    fields = list(kind.model_fields)
    first = [name for name in _FIRST if name in fields]
    return fields[: len(first)] == first


def decode(adapter: TypeAdapter[T], payload: bytes, limit_bytes: int = MAX_PAYLOAD_BYTES) -> T:
    """Return the message in `payload`; raises `BadMessage`, which repeats none of its content."""
    if len(payload) > limit_bytes:
        raise BadMessage(f"payload of {len(payload)} bytes; at most {limit_bytes} are taken")
    try:
        return adapter.validate_json(payload)
    except ValidationError as error:
        raise BadMessage(_fault(error)) from None
    except (RecursionError, ValueError) as error:
        raise BadMessage(f"not usable JSON: {type(error).__name__}") from None


def _fault(error: ValidationError) -> str:
    """Say where the first fault is, by our own words alone: keys of a mapping are content, too."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"] if part in FIELD_NAMES) or "payload"
    if first["type"] == "union_tag_invalid":  # pydantic's message would repeat the tag
        return f"{where}: must be one of {first['ctx']['expected_tags']}"
    return f"{where}: {first['msg']}"
