"""What the agent's core asks of its shell, and what the shell tells it back, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from pydantic import JsonValue

from broker.protocol.link_events import Outgoing
from broker.protocol.messages import Assign, Capability, Failed, Fault, Finished, Gpu

# Effects: core to shell


@dataclass(frozen=True, slots=True)
class Task:
    """What the core asks of its shell."""


@dataclass(frozen=True, slots=True)
class TaskOfAttempt(Task):
    """It concerns one attempt."""

    job_id: str
    attempt: int


Effect = Outgoing | Task


@dataclass(frozen=True, slots=True)
class Measure(Task):
    """Measure free memory, load and GPUs; answer with `Vitals`."""


@dataclass(frozen=True, slots=True)
class Look(Task):
    """Look for the owner's snooze, and with `idle` whether the machine is in use: `Looked`."""

    idle: bool


@dataclass(frozen=True, slots=True)
class StartTrainer(Task):
    """Start the trainer of an assignment in its own process group and work folder.

    `gpu` is the CUDA device of its slot, none for a run on the CPU.
    """

    assign: Assign
    slot: int
    gpu: int | None


@dataclass(frozen=True, slots=True)
class SignalTrainer(TaskOfAttempt):
    """Ask the trainer's process group to end (SIGTERM), or end it (SIGKILL)."""

    kill: bool


@dataclass(frozen=True, slots=True)
class MakeBundle(TaskOfAttempt):
    """Bundle what the trainer wrote into the spool; answer `BundleMade` or `BundleFailed`."""


@dataclass(frozen=True, slots=True)
class Unbundled:
    """A job whose trainer is done, and whose result is not bundled yet."""

    assign: Assign
    result: dict[str, JsonValue] | None
    ran_s: float | None


@dataclass(frozen=True, slots=True)
class Left:
    """What an earlier process of the agent has left: reports that it owed, and what it had in hand.

    `interrupted` are the jobs and attempts that ran when it was killed, and have a checkpoint here.
    """

    reports: Sequence[Finished | Failed] = ()
    unbundled: Sequence[Unbundled] = ()
    interrupted: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True, slots=True)
class KeepUnbundled(Task):
    """Keep what the trainer wrote for the agent's next process, which is to bundle it."""

    left: Unbundled


class Part(StrEnum):
    """What an attempt may need on this host before its trainer starts."""

    PROGRAM = "program"
    ENVIRONMENT = "environment"  # the packages of its program
    DATA = "data"
    INPUTS = "inputs"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class Missing:
    """What a part lacks, as the coordinator has it; sizes in bytes, of it all and of a chunk."""

    artifact_id: str
    size_bytes: int
    chunk_bytes: int


@dataclass(frozen=True, slots=True)
class FindPart(TaskOfAttempt):
    """Look for a part that an attempt needs; answer `PartFound`.

    A program is trusted first; an environment is made.
    """

    assign: Assign
    part: Part


@dataclass(frozen=True, slots=True)
class WriteFetched(TaskOfAttempt):
    """Put a piece of what is fetched in its place; if it cannot be, `PartFound` says so."""

    part: Part
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class InstallPart(TaskOfAttempt):
    """Hash and install what has come of a part, and look for it again; answer `PartFound`."""

    assign: Assign
    part: Part
    artifact_id: str


@dataclass(frozen=True, slots=True)
class GiveUpFetch(TaskOfAttempt):
    """Forget what an attempt was fetching."""


@dataclass(frozen=True, slots=True)
class BundleCheckpoint(TaskOfAttempt):
    """Bundle the trainer's checkpoint, if any, into the spool; answer `CheckpointBundled`."""


@dataclass(frozen=True, slots=True)
class DropCheckpoint(Task):
    """The job is over: delete its checkpoint."""

    job_id: str


@dataclass(frozen=True, slots=True)
class CheckBundle(TaskOfAttempt):
    """Hash a spooled bundle again; answer with `BundleChecked`."""

    artifact_id: str


@dataclass(frozen=True, slots=True)
class SpoolReport(Task):
    """Keep a report on disk until the coordinator has noted it (and stored its artifact).

    `data` is the bundle that goes with it, if it is small.
    """

    report: Finished | Failed
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class ClearJob(TaskOfAttempt):
    """Delete the work folder of an attempt and what the spool holds of it, with its bundle.

    `in_vain`: that what the coordinator was told of it was not taken, and why.
    """

    artifact_id: str | None = None
    in_vain: str = ""


@dataclass(frozen=True, slots=True)
class SendChunk(Task):
    """Read a piece of a spooled bundle and publish it."""

    artifact_id: str
    index: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Leave(Task):
    """Publish the goodbye and end."""


@dataclass(frozen=True, slots=True)
class Warn(Task):
    """Log a warning; the core says each thing once."""

    text: str


# Events: shell to core


@dataclass(frozen=True, slots=True)
class ShellEvent:
    """What the shell tells the core."""


@dataclass(frozen=True, slots=True)
class AttemptEvent(ShellEvent):
    """It concerns one attempt."""

    job_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Vitals(ShellEvent):
    """What the machine can spare now; GPUs' figures count everybody's processes.

    `data_id` is the fingerprint of the prepared data that is there now, none where there is none.
    `versions` are those of the host's own trainers, `holdings` the digests of the datasets and
    programs that lie here.
    """

    ram_available_bytes: int
    data_id: str | None
    cpu_percent: float | None = None
    load_1m: float | None = None
    gpus: tuple[Gpu, ...] = ()
    suspended_s: float | None = None
    disk_free_bytes: int | None = None  # for the agent's own files
    versions: Mapping[str, str] = field(default_factory=dict)
    holdings: tuple[str, ...] = ()

    def figures(self) -> dict[str, Any]:
        """Return what a heartbeat says of them: all but what the capability says."""
        return {name: getattr(self, name) for name in _IN_HEARTBEAT}


_IN_HEARTBEAT: Final = tuple(
    one.name for one in fields(Vitals) if one.name not in {"data_id", "holdings", "versions"}
)


@dataclass(frozen=True, slots=True)
class Snooze:
    """The owner wants the machine: until then by its own clock (none: until that is ended).

    `now`: what runs is given back at once.
    """

    until: datetime | None = None
    now: bool = False


@dataclass(frozen=True, slots=True)
class Looked(ShellEvent):
    """What was seen of the machine; `local` is the time on its clock, without a time zone.

    `input_idle_s`: since when nobody has touched keyboard or mouse; `gpu_users`: other programs
    that work on its GPUs; `others_percent`: how much of all cores other programs use. None where
    that cannot be known, or was not asked for.
    """

    local: datetime
    snooze: Snooze | None = None
    input_idle_s: float | None = None
    gpu_users: tuple[str, ...] = ()
    others_percent: float | None = None


@dataclass(frozen=True, slots=True)
class Probed(ShellEvent):
    """The capability probe has ended; session and instance are the core's to fill in."""

    capability: Capability


@dataclass(frozen=True, slots=True)
class TrainerStarted(AttemptEvent):
    """The trainer's process runs."""

    pid: int
    resumes: bool = False  # from a checkpoint


@dataclass(frozen=True, slots=True)
class TrainerLine(AttemptEvent):
    """A line of the trainer's output, without its line end."""

    line: str


@dataclass(frozen=True, slots=True)
class TrainerExited(AttemptEvent):
    """The trainer's process has ended. A negative code is minus the signal that ended it.

    `error` is why it could not be started, if so; `transient` whether that may pass. `data_gone`:
    it failed, and the prepared data was not there then.
    """

    code: int | None
    error: str = ""
    transient: bool = True
    data_gone: bool = False


@dataclass(frozen=True, slots=True)
class BundleMade(AttemptEvent):
    """The bundle is in the spool, fsynced; if it is small, `data` has it, and is to be kept."""

    artifact_id: str
    size_bytes: int
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class BundleFailed(AttemptEvent):
    """The bundle could not be made. `passing`: the disk refused, and may take it later."""

    reason: str
    passing: bool = False
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class PartFound(AttemptEvent):
    """A part lies on this host, or is `missing` something; `fault`: it cannot be used here."""

    part: Part
    missing: Missing | None = None
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class CheckpointBundled(AttemptEvent):
    """A checkpoint is in the spool; without an artifact there is none."""

    artifact_id: str | None = None
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class BundleChecked(AttemptEvent):
    """The spooled bundle was hashed again; `whole` if it is still what it was."""

    whole: bool


@dataclass(frozen=True, slots=True)
class BundleUnread(ShellEvent):
    """A piece of a spooled bundle that was to be sent could not be read."""

    artifact_id: str


@dataclass(frozen=True, slots=True)
class Shutdown(ShellEvent):
    """The agent was asked to end, by a signal."""


@dataclass(frozen=True, slots=True)
class Tick(ShellEvent):
    """Time has passed."""
