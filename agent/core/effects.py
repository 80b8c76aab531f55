"""What the agent's core asks of its shell, and what the shell tells it back, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pydantic import JsonValue

from broker.protocol.events import Outgoing
from broker.protocol.messages import Assign, Capability, Failed, Finished, Gpu

# Effects: core to shell


@dataclass(frozen=True, slots=True)
class Measure:
    """Measure free memory, load and GPUs; answer with `Vitals`."""


@dataclass(frozen=True, slots=True)
class Look:
    """Look whose the machine is now, and with `idle` whether somebody uses it: `Looked`."""

    idle: bool


@dataclass(frozen=True, slots=True)
class StartTrainer:
    """Start the trainer of an assignment in its own process group and work folder.

    `gpu` is the CUDA device of its slot, none for a run on the CPU.
    """

    assign: Assign
    slot: int
    gpu: int | None


@dataclass(frozen=True, slots=True)
class SignalTrainer:
    """Ask the trainer's process group to end (SIGTERM), or end it (SIGKILL)."""

    job_id: str
    attempt: int
    kill: bool


@dataclass(frozen=True, slots=True)
class MakeBundle:
    """Bundle what the trainer wrote into the spool; answer `BundleMade` or `BundleFailed`."""

    job_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Unbundled:
    """A job whose trainer is done, and whose result is not bundled yet."""

    assign: Assign
    result: dict[str, JsonValue] | None
    ran_s: float | None


@dataclass(frozen=True, slots=True)
class KeepUnbundled:
    """Keep what the trainer wrote for the agent's next process, which is to bundle it."""

    left: Unbundled


@dataclass(frozen=True, slots=True)
class FindCheckpoint:
    """Look for a checkpoint at least as new as the one of attempt `made_by`: `CheckpointFound`."""

    job_id: str
    attempt: int
    made_by: int


@dataclass(frozen=True, slots=True)
class WriteFetched:
    """Put a piece of a checkpoint in its place; `CheckpointInstalled` says so if it cannot be."""

    job_id: str
    attempt: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class InstallCheckpoint:
    """Hash and unpack a checkpoint that is all here; answer with `CheckpointInstalled`."""

    job_id: str
    attempt: int
    artifact_id: str
    made_by: int


@dataclass(frozen=True, slots=True)
class GiveUpFetch:
    """Forget the checkpoint that an attempt was fetching."""

    job_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class BundleCheckpoint:
    """Bundle what the trainer left off at, if anything, into the spool: `CheckpointBundled`."""

    job_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class DropCheckpoint:
    """The job is over: delete its checkpoint."""

    job_id: str


@dataclass(frozen=True, slots=True)
class CheckBundle:
    """Hash a spooled bundle again; answer with `BundleChecked`."""

    job_id: str
    attempt: int
    artifact_id: str


@dataclass(frozen=True, slots=True)
class SpoolReport:
    """Keep a report on disk until the coordinator has noted it (and stored its artifact).

    `data` is the bundle that goes with it, if it is small.
    """

    report: Finished | Failed
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class ClearJob:
    """Delete the work folder of an attempt and what the spool holds of it, with its bundle.

    `in_vain`: that what the coordinator was told of it was not taken, and why.
    """

    job_id: str
    attempt: int
    artifact_id: str | None = None
    in_vain: str = ""


@dataclass(frozen=True, slots=True)
class SendChunk:
    """Read a piece of a spooled bundle and publish it."""

    artifact_id: str
    index: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Everything is put away: publish the goodbye and end."""


@dataclass(frozen=True, slots=True)
class Warn:
    """Log a warning; the core says each thing once."""

    text: str


Effect = (
    Outgoing
    | Measure
    | Look
    | StartTrainer
    | SignalTrainer
    | MakeBundle
    | KeepUnbundled
    | FindCheckpoint
    | WriteFetched
    | InstallCheckpoint
    | GiveUpFetch
    | BundleCheckpoint
    | DropCheckpoint
    | CheckBundle
    | SpoolReport
    | ClearJob
    | SendChunk
    | Leave
    | Warn
)

# Events: shell to core


@dataclass(frozen=True, slots=True)
class Vitals:
    """What the machine can spare now; GPUs' figures count everybody's processes.

    `data_id` is the fingerprint of the prepared data that is there now, none where there is none.
    """

    ram_available_bytes: int
    data_id: str | None
    cpu_percent: float | None = None
    load_1m: float | None = None
    gpus: tuple[Gpu, ...] = ()
    suspended_s: float | None = None


@dataclass(frozen=True, slots=True)
class Snooze:
    """The owner wants the machine: until then by its own clock (none: until that is ended).

    `now`: what runs is given back at once.
    """

    until: datetime | None = None
    now: bool = False


@dataclass(frozen=True, slots=True)
class Looked:
    """What was seen of the machine; `local` is the time on its clock, without a time zone.

    `input_idle_s`: since when nobody has touched keyboard or mouse; `gpu_users`: other programs
    that work on its GPUs; `others_percent`: how much of all cores other programs use;
    `suspended_s`: for how long it has slept since it booted. None where that cannot be known, or
    was not asked for.
    """

    local: datetime
    snooze: Snooze | None = None
    input_idle_s: float | None = None
    gpu_users: tuple[str, ...] = ()
    others_percent: float | None = None
    suspended_s: float | None = None


@dataclass(frozen=True, slots=True)
class Probed:
    """The capability probe has ended; session and instance are the core's to fill in."""

    capability: Capability


@dataclass(frozen=True, slots=True)
class TrainerStarted:
    """The trainer's process runs."""

    job_id: str
    attempt: int
    pid: int
    resumes: bool = False  # from a checkpoint


@dataclass(frozen=True, slots=True)
class TrainerLine:
    """A line of the trainer's output, without its line end."""

    job_id: str
    attempt: int
    line: str


@dataclass(frozen=True, slots=True)
class TrainerExited:
    """The trainer's process has ended. A negative code is minus the signal that ended it.

    `error` is why it could not be started, if so; `transient` whether that may pass. `data_gone`:
    it failed, and the prepared data was not there then.
    """

    job_id: str
    attempt: int
    code: int | None
    error: str = ""
    transient: bool = True
    data_gone: bool = False


@dataclass(frozen=True, slots=True)
class BundleMade:
    """The bundle is in the spool, fsynced; if it is small, `data` has it, and is to be kept."""

    job_id: str
    attempt: int
    artifact_id: str
    size_bytes: int
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class BundleFailed:
    """The bundle could not be made. `passing`: the disk refused, and may take it later."""

    job_id: str
    attempt: int
    reason: str
    passing: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointFound:
    """Whether a checkpoint that is new enough lies on this host."""

    job_id: str
    attempt: int
    here: bool


@dataclass(frozen=True, slots=True)
class CheckpointInstalled:
    """A fetched checkpoint is in the trainer's folder, or `error` says why it is not."""

    job_id: str
    attempt: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointBundled:
    """A checkpoint is in the spool; without an artifact there is none."""

    job_id: str
    attempt: int
    artifact_id: str | None = None
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class BundleChecked:
    """The spooled bundle was hashed again; `whole` if it is still what it was."""

    job_id: str
    attempt: int
    whole: bool


@dataclass(frozen=True, slots=True)
class BundleUnread:
    """A piece of a spooled bundle that was to be sent could not be read."""

    artifact_id: str


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Someone on this machine asked the agent to end."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


ShellEvent = (
    Vitals
    | Looked
    | Probed
    | TrainerStarted
    | TrainerLine
    | TrainerExited
    | BundleMade
    | BundleFailed
    | CheckpointFound
    | CheckpointInstalled
    | CheckpointBundled
    | BundleChecked
    | BundleUnread
    | Shutdown
    | Tick
)
