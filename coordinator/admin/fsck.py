"""Compares what the state folder holds: ledger, artifacts, logs.

`check` only reads. A finding has a repair where one is safe: no job's state is ever guessed.
Part files are left to the coordinator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from broker.figures import counted
from broker.system.files import RealDisk
from coordinator.jobs.jobs import Job
from coordinator.jobs.records import PushedRecord
from coordinator.ledger.ledger import Ledger
from coordinator.store.partfile import sha256_of
from coordinator.store.store import bundles_in, is_checkpoint

SETTLING_S: Final = 60.0
_LOG: Final = re.compile(r"([0-9a-f]{64})\.\d+\.log")


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault (`what`) of a path or a job (`where`).

    The repair moves `damaged` aside, which keeps its bytes; `remedy` is left to a person.
    """

    kind: str
    where: str
    what: str
    damaged: Path | None = None
    remedy: str = ""

    def repair(self) -> str | None:
        """Say what the repair does, if there is one."""
        return None if self.damaged is None else f"moves it to {_aside(self.damaged).name}"

    def needs_a_person(self) -> bool:
        """Whether something is left to be done when the repair is done."""
        return self.damaged is None or bool(self.remedy)


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ".damaged")


def repair(disk: RealDisk, findings: Sequence[Finding]) -> None:
    """Move every damaged artifact aside. Raises OSError when the disk refuses."""
    for path in [finding.damaged for finding in findings if finding.damaged is not None]:
        disk.replace(path, _aside(path))
        disk.sync_folder(path.parent)


@dataclass(slots=True)
class Report:
    """What a check has seen.

    `sizes` (bytes) are those of the artifacts that hash to their names, and of those that the
    ledger keeps until they are files.
    """

    jobs: int = 0
    artifacts: int = 0  # results of jobs; what attempts left to go on from are `checkpoints`
    checkpoints: int = 0
    hashed_bytes: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Folder:
    """A coordinator's state folder at one moment.

    While a coordinator is `running`, what is younger than `SETTLING_S` may be unfinished and is not
    judged.
    """

    disk: RealDisk
    root: Path
    now_wall_s: float
    running: bool

    def is_settling(self, path: Path) -> bool:
        """Whether a file may still be in the making, or has gone."""
        try:
            age_s = self.now_wall_s - self.disk.modified_s(path)
        except OSError:
            age_s = 0.0
        return self.running and age_s < SETTLING_S


def check(folder: Folder, open_ledger: Callable[[], Ledger]) -> Report:
    """Compare everything with everything; read each artifact to its end.

    Bundles are listed first, then the ledger is read: in this order nothing that a running
    coordinator adds looks unreferenced.
    """
    report = Report()
    models = folder.root / "models"
    bundles = bundles_in(folder.disk, models)
    ledger = open_ledger()
    try:
        jobs = ledger.load()
        pushed = ledger.load_pushed()
        set_aside = ledger.set_aside_since("")
        report.sizes.update(ledger.bundle_sizes())
    finally:
        ledger.close()
    if missing := _missing(bundles, jobs, report):
        # What the ledger has let go of since the bundles were listed has become a file.
        again = bundles_in(folder.disk, models)
        bundles |= {artifact_id: again[artifact_id] for artifact_id in missing & again.keys()}
    report.jobs, report.checkpoints = len(jobs), sum(map(is_checkpoint, bundles.values()))
    report.artifacts = len({*bundles, *report.sizes}) - report.checkpoints
    report.findings += [
        _is_missing(job) for job in jobs.values() if job.artifact_id in missing - bundles.keys()
    ]
    report.findings += _lost_blobs(pushed, bundles)
    report.findings += _bundles(folder, bundles, jobs, report)
    referenced = set_aside | {blob.artifact_id for one in pushed for blob in one.offer.blobs()}
    referenced |= {job.artifact_id for job in jobs.values() if job.artifact_id is not None}
    report.findings += _unreferenced(folder, bundles, report, referenced)
    report.findings += _logs(folder, jobs)
    return report


def _bundles(
    folder: Folder, bundles: Mapping[str, Path], jobs: Mapping[str, Job], report: Report
) -> Iterator[Finding]:
    """Hash every artifact; note those that are what their names say."""
    holders = {job.artifact_id: job for job in jobs.values()}
    for artifact_id, path in bundles.items():
        try:
            digest, size_bytes = sha256_of(folder.disk, path)
        except OSError as error:
            what = f"cannot be read: {error.strerror or error}"
            yield Finding("damaged", str(path), what, remedy="look after the disk")
            continue
        report.hashed_bytes += size_bytes
        if digest == artifact_id:
            report.sizes[artifact_id] = size_bytes
            continue
        holder = holders.get(artifact_id)
        remedy = "" if holder is None else _train_again(holder)
        what = f"its bytes hash to {digest[:12]}…"
        yield Finding("damaged", str(path), what, path, remedy)


def _missing(bundles: Mapping[str, Path], jobs: Mapping[str, Job], report: Report) -> set[str]:
    """Return the artifacts of jobs that are neither files nor kept in the ledger."""
    wanted = {job.artifact_id for job in jobs.values() if job.artifact_id is not None}
    return wanted - bundles.keys() - report.sizes.keys()


def _is_missing(job: Job) -> Finding:
    what = f"{job.state.value}, but its artifact {(job.artifact_id or '')[:12]}… is not there"
    return Finding("missing", f"job {job.spec.name}", what, remedy=_train_again(job))


def _lost_blobs(pushed: Iterable[PushedRecord], bundles: Mapping[str, Path]) -> Iterator[Finding]:
    for offer in (one.offer for one in pushed):
        lost = sum(blob.artifact_id not in bundles for blob in offer.blobs())
        if lost:
            what, it = "its parcel is not there", "it"
            if offer.kind == "dataset":
                what, it = f"{counted(lost, 'blob')} of it not there", "jobs with it"
            name = f"{offer.kind} {offer.name}@{offer.digest[:12]}"
            remedy = f"push it again; until then hosts that lack it cannot run {it}"
            yield Finding("missing", name, what, remedy=remedy)


def _train_again(job: Job) -> str:
    return f"`fleet requeue {job.job_id[:12]}` trains {job.spec.name} again"


def _unreferenced(
    folder: Folder, bundles: Mapping[str, Path], report: Report, referenced: set[str]
) -> Iterator[Finding]:
    for artifact_id, path in bundles.items():
        # The coordinator itself deletes a checkpoint that no job goes on from.
        whole = artifact_id in report.sizes and not is_checkpoint(path)
        spare = whole and artifact_id not in referenced
        if spare and not folder.is_settling(path):
            what = "no job refers to it"
            yield Finding("unreferenced", str(path), what, remedy="delete it if nobody needs it")


def _logs(folder: Folder, jobs: Mapping[str, Job]) -> Iterator[Finding]:
    for path in folder.disk.glob(folder.root / "logs", "*.log"):
        named = _LOG.fullmatch(path.name)
        if named and named[1] not in jobs and not folder.is_settling(path):
            what = "the ledger does not know its job"
            yield Finding("log", str(path), what, remedy="delete it if nobody needs it")
