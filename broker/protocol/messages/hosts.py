"""What a host is, and how it fares; presence, which the coordinator has as well."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, TypeAdapter

from broker.protocol.messages.values import (
    LONGEST_S,
    MAX_LISTED,
    ArtifactId,
    Attempt,
    Bytes,
    Fault,
    Holds,
    Id,
    JobId,
    Line,
    Metrics,
    Pem,
    Piece,
    ProgramsAllowed,
    Receipt,
    Share,
    TrainerInfo,
    Wire,
    Word,
    omitted,
)

MAX_HOLDINGS: Final = 100  # programs, or datasets, that a host tells of


class OwedResult(Piece):
    """The result of an attempt, which waits on its host's disk until the coordinator has it."""

    job_id: JobId
    attempt: Attempt


class Status(Wire):
    """Presence of a host or of the coordinator; its will bears the session that it belongs to."""

    state: Literal["online", "offline"]
    reason: Literal["birth", "goodbye", "lost"] = "birth"
    session: Id = Field(description="New at every connect; a will speaks for its session only.")
    instance: Id = Field(description="New at every start of the process.")
    boot_id: Id = Field(description="New at every boot of the machine.")
    owes: tuple[OwedResult, ...] = Field(
        default=(),
        max_length=MAX_LISTED,
        description="Of a goodbye: results that the host will bring when it is back.",
    )


class Gpu(Piece):
    """One CUDA device."""

    index: int = Field(ge=0, le=1023)
    name: str = Field(default="", max_length=200)
    uuid: str = Field(default="", max_length=80)
    vram_total_bytes: Bytes | None = None
    vram_free_bytes: Bytes | None = Field(default=None, description="Others' processes counted.")
    use_percent: float | None = Field(default=None, ge=0, le=100)
    power_w: float | None = Field(default=None, ge=0, le=100_000)


class Capability(Wire):
    """What a host is; retained."""

    session: Id
    instance: Id
    description: Line = ""
    os: Line
    arch: Line
    python: Line
    cpu: Line = ""
    physical_cores: int = Field(ge=1, le=65_536)
    ram_total_bytes: Bytes
    ram_available_bytes: Bytes
    disk_free_bytes: Bytes | None = Field(
        default=None, description="Free where the agent keeps its own files."
    )
    gpus: Annotated[tuple[Gpu, ...], Field(max_length=64)] = ()
    gpu_problem: Line = Field(default="", description="Why CUDA could not be probed, if so.")
    torch: str | None = Field(default=None, max_length=80)
    xgboost: str | None = Field(default=None, max_length=80)
    trainers: Annotated[dict[Word, TrainerInfo], Field(max_length=64)] = {}
    trainers_commit: str | None = Field(default=None, max_length=80)
    data_id: str | None = Field(
        default=None, max_length=80, description="Fingerprint of the prepared data; none without."
    )
    slots: int = Field(default=1, ge=1, le=64)
    battery: bool = Field(
        default=False, description="It runs on a battery at times, and may sleep."
    )
    agent_version: str = Field(default="", max_length=80)
    idle_by: Line = Field(default="", description="How it finds out whether somebody uses it.")
    certificate_expires_at: str | None = Field(
        default=None, max_length=40, description="When its certificate ends; none without TLS."
    )
    programs: ProgramsAllowed | None = omitted(
        None, "Which programs it takes from the fleet; without it, none."
    )
    holdings: Annotated[tuple[ArtifactId, ...], Field(max_length=2 * MAX_HOLDINGS)] = omitted(
        (), "The digests of datasets and programs that lie on its disk, used lately."
    )

    def with_versions(self, versions: Mapping[str, str]) -> Self:
        """Return it with these versions of its trainers."""
        trainers = {
            name: one.model_copy(update={"version": versions.get(name, one.version)})
            for name, one in self.trainers.items()
        }
        return self.model_copy(update={"trainers": trainers})

    def lacks_data(self) -> bool:
        """Whether it has trainers, and all of them read prepared data, which it lacks.

        Not of a host that takes programs, or that has no trainer: it was not meant to have any.
        """
        reads = bool(self.trainers) and all(one.telemetry for one in self.trainers.values())
        return self.data_id is None and self.programs is None and reads


Phase = Literal[
    "fetching", "preparing", "starting", "running", "stopping", "bundling", "reporting", "uploading"
]


class HeldJob(Piece):
    """A job that the agent holds: it runs, or its result has not been handed over yet."""

    job_id: JobId
    attempt: Attempt
    phase: Phase
    progress: Share | None = None
    receipt: Receipt = ""
    fault: Fault | None = omitted(None, "Why its result is not bundled yet.")


class Heartbeat(Wire):
    """What a host is doing now. The list of held jobs is complete: what is absent is not held."""

    session: Id
    instance: Id
    seq: int = Field(ge=0)
    ram_available_bytes: Bytes
    cpu_percent: float | None = Field(default=None, ge=0)
    load_1m: float | None = Field(default=None, ge=0)
    gpus: Annotated[tuple[Gpu, ...], Field(max_length=64)] = ()
    jobs: Annotated[tuple[HeldJob, ...], Field(max_length=MAX_LISTED)] = ()
    refuses: Holds = Field(
        default=(),
        description="Why it takes no jobs now (starting, leaving, snoozed, quiet, in_use); empty: "
        "it takes some.",
    )
    dropped: int = Field(default=0, ge=0, description="Messages dropped as garbage so far.")
    disk_free_bytes: Bytes | None = Field(
        default=None, description="Free where the agent keeps its own files."
    )
    rules: Annotated[str, Field(max_length=64)] = Field(
        default="", description="Which of the manifest's rules it has taken; their digest."
    )
    suspended_s: float | None = Field(
        default=None, ge=0, description="For how long the machine has slept since it booted."
    )


EtaS = Annotated[float, Field(ge=0), AfterValidator(lambda eta_s: min(eta_s, LONGEST_S))]


class Progress(Wire):
    """Progress of one running job; retained while it runs."""

    attempt: Attempt
    phase: Annotated[str, Field(max_length=40)] = "train"
    epoch: int | None = Field(default=None, ge=0)
    epochs: int | None = Field(default=None, ge=0)
    first_epoch: int | None = Field(
        default=None, ge=0,
        description="The first that this attempt told of; what is before it, it goes on from.",
    )  # fmt: skip
    train_loss: float | None = None
    val_loss: float | None = None
    metrics: Metrics = {}
    eta_s: EtaS | None = None


class CertificateRequest(Wire):
    """A host asks for its next certificate, for the key that it has."""

    id: Id
    request: Pem = Field(description="PKCS #10; nothing but its key counts.")


class CertificateResponse(Wire):
    """The certificate, or why there is none."""

    id: Id = Field(description="The request's.")
    certificate: Pem | None = None
    error: Line = ""


STATUS: Final = TypeAdapter(Status)
CAPABILITY: Final = TypeAdapter(Capability)
HEARTBEAT: Final = TypeAdapter(Heartbeat)
PROGRESS: Final = TypeAdapter(Progress)
CERTIFICATE_REQUEST: Final = TypeAdapter(CertificateRequest)
CERTIFICATE_RESPONSE: Final = TypeAdapter(CertificateResponse)
