"""What the core asks of its shell, and what the shell tells it back, as values.

`Outgoing` messages are effects too. The shell commits the ledger's changes first, then performs the
effects in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from broker.protocol import messages as m
from broker.protocol.link_events import Outgoing
from broker.protocol.loglines import LogLines
from broker.stream.ranges import RangeSet
from coordinator.jobs.causes import Cause
from coordinator.jobs.plan_entries import Plan
from coordinator.jobs.records import Result
from coordinator.manifest.data_keys import Catalogue
from coordinator.manifest.problems import Problem

# Effects: core to shell


@dataclass(frozen=True, slots=True)
class Task:
    """What the core asks of its shell."""


@dataclass(frozen=True, slots=True)
class TaskOfArtifact(Task):
    """The same, of an artifact."""

    artifact_id: str


@dataclass(frozen=True, slots=True)
class OpenPart(TaskOfArtifact):
    """Open or create a part file; answer `PartOpened` or `PartFailed`. `part` numbers openings."""

    size_bytes: int
    chunk_bytes: int
    part: int


@dataclass(frozen=True, slots=True)
class WriteChunk(TaskOfArtifact):
    """Write whole chunks from `index` on; answer `PartWritten` or `PartFailed`."""

    index: int
    data: bytes


@dataclass(frozen=True, slots=True)
class FinishPart(TaskOfArtifact):
    """Hash, rename into the store, fsync; answer with `PartStored` or `PartFailed`."""

    model: str
    mode: str


@dataclass(frozen=True, slots=True)
class FileBundles(Task):
    """Make files of what the ledger keeps; answer each by `BundleFiled` or `BundleRefused`."""

    artifact_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VerifyStored(TaskOfArtifact):
    """Hash an artifact in the store: answer `PartStored`, or `ArtifactLost` if it is not whole."""


@dataclass(frozen=True, slots=True)
class DropPart(TaskOfArtifact):
    """Nobody wants this artifact any more: close and delete its part file."""


@dataclass(frozen=True, slots=True)
class LeavePart(TaskOfArtifact):
    """Nobody sends this artifact any more: close its part file, and keep it for a later go."""


@dataclass(frozen=True, slots=True)
class AppendLog(Task):
    """Append lines of a trainer's output, heard at `at_s` (since the epoch), to the job's log."""

    job_id: str
    said: LogLines
    at_s: float


@dataclass(frozen=True, slots=True)
class KeepPoint(Task):
    """Add what a trainer has told of its losses to the job's curve."""

    job_id: str
    told: m.Progress


@dataclass(frozen=True, slots=True)
class LookUp(Task):
    """Answer a client's request with what the core does not know.

    `job_ids` are the known jobs that it is about; `data` is what the core knows for the answer.
    """

    client: str
    ask: m.AskAttempts | m.AskCurves | m.AskEvents | m.AskLogs | m.AskShow
    job_ids: tuple[str, ...] = ()
    data: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FindResults(Task):
    """Look up the results of a job's attempts; answer `ResultsFound`. `held` is the present one."""

    client: str
    ask: m.AskFetch
    job_id: str
    held: str | None


@dataclass(frozen=True, slots=True)
class ReadManifest(Task):
    """Read the manifest again, by what a job may name; answer with what was read."""

    known: Catalogue
    client: str | None = None
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class CheckSignatures(Task):
    """Check the signatures of an offered program by the CA; answer `SignaturesChecked`."""

    client: str
    ask: m.AskPush
    offer: m.ProgramOffer
    crl: str


@dataclass(frozen=True, slots=True)
class SendChunk(Task):
    """Read a piece of a stored artifact and publish it on the topic of one who downloads it."""

    topic: str
    artifact_id: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Collect(Task):
    """Delete old events, dead part files, artifacts that no job has; answer `Collected`."""

    unreferenced: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tell(Task):
    """Have the log, and whoever manages the service, know what the coordinator has done."""

    text: str


@dataclass(frozen=True, slots=True)
class Warn(Task):
    """Log a warning; the core says each thing once."""

    text: str


Effect = Outgoing | Task

# Events: shell to core


@dataclass(frozen=True, slots=True)
class ShellEvent:
    """What a shell tells its core."""


@dataclass(frozen=True, slots=True)
class EventOfArtifact(ShellEvent):
    """The same, of an artifact."""

    artifact_id: str


@dataclass(frozen=True, slots=True)
class PartOpened(EventOfArtifact):
    """The part file is open; `have` are the chunks that are on disk already."""

    have: RangeSet
    part: int


@dataclass(frozen=True, slots=True)
class PartWritten(EventOfArtifact):
    """So many bytes more are in the part file."""

    part: int
    length: int


@dataclass(frozen=True, slots=True)
class PartFailed(EventOfArtifact):
    """The part file failed; `corrupt`: its hash is wrong; `no_room`: what the disk lacks."""

    part: int
    corrupt: bool = False
    no_room: m.NoRoom | None = None


@dataclass(frozen=True, slots=True)
class PartStored(EventOfArtifact):
    """The artifact is in the store: hashed, renamed, fsynced."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class BundleFiled(EventOfArtifact):
    """A small artifact is a file of the store, durably."""


@dataclass(frozen=True, slots=True)
class BundleRefused(EventOfArtifact):
    """The disk has refused to make a file of a small artifact; the ledger still keeps it."""


@dataclass(frozen=True, slots=True)
class ArtifactLost(EventOfArtifact):
    """An artifact that was in the store is gone, or damaged: somebody has touched it."""


@dataclass(frozen=True, slots=True)
class ResultsFound(ShellEvent):
    """What a job's attempts have brought, by attempt, for whoever has `asked`."""

    asked: FindResults
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class SignaturesChecked(ShellEvent):
    """The signatures of an offered program were checked; `fault`: one of them does not count."""

    asked: CheckSignatures
    fault: m.Fault | None = None


@dataclass(frozen=True, slots=True)
class Collected(ShellEvent):
    """Old things are deleted; of the unreferenced artifacts these are still there, by size."""

    kept: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ManifestRead(ShellEvent):
    """The manifest was read and is whole."""

    plan: Plan
    client: str | None = None
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class ManifestRefused(ShellEvent):
    """The manifest is faulty; the running plan stays as it is."""

    problems: tuple[Problem, ...]
    client: str | None = None
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class ReloadAsked(ShellEvent):
    """Someone on this machine asked for a reload (SIGHUP)."""


@dataclass(frozen=True, slots=True)
class ManifestChanged(ShellEvent):
    """The manifest's file is not what was read last; `how`: a cause, empty when it is again."""

    how: Cause


@dataclass(frozen=True, slots=True)
class JournalRead(ShellEvent):
    """The journal of the CA was read: who did what, oldest first; its revocation list, in PEM."""

    entries: tuple[tuple[str, m.AskIdentity], ...]
    crl: str = ""


@dataclass(frozen=True, slots=True)
class Tick(ShellEvent):
    """Time has passed."""
