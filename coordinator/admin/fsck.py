"""Compares what the state folder holds: ledger, history, artifacts, index, part files, logs.

`check` only reads. A finding has a repair where one is safe: no job's state is ever guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from broker.figures import counted
from broker.system.files import RealDisk, read
from coordinator.admin.repairs import Finding, Repair
from coordinator.core.stored_artifacts import index_row
from coordinator.jobs.jobs import Job
from coordinator.jobs.records import PushedRecord
from coordinator.jobs.states import JobState
from coordinator.ledger.ledger import Ledger
from coordinator.ledger.replay import contradiction
from coordinator.store.index_rows import INDEX, Key, ended, is_known, row_in, row_key, row_line
from coordinator.store.partfile import sha256_of
from coordinator.store.store import PARTS_KEPT_S, bundles_in, is_checkpoint

SETTLING_S: Final = 60.0
_MAX_EVENTS: Final = 10_000
_LOG: Final = re.compile(r"([0-9a-f]{64})\.\d+\.log")


@dataclass(slots=True)
class Report:
    """What a check has seen.

    `sizes` (bytes) are those of the artifacts that hash to their names, and of those that the
    ledger keeps until they are files; what could not be read is `unread`, and neither good nor bad.
    """

    jobs: int = 0
    artifacts: int = 0  # results of jobs; what attempts left to go on from are `checkpoints`
    checkpoints: int = 0
    hashed_bytes: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
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

    def age_s(self, path: Path) -> float:
        """Return for how long nothing was written to a file; 0 when it has gone."""
        try:
            return self.now_wall_s - self.disk.modified_s(path)
        except OSError:
            return 0.0

    def is_settling(self, age_s: float) -> bool:
        """Whether something of this age may still be in the making."""
        return self.running and age_s < SETTLING_S


def check(folder: Folder, open_ledger: Callable[[], Ledger]) -> Report:
    """Compare everything with everything; read each artifact to its end.

    Bundles are listed first, then the ledger is read, then the index: in this order nothing that a
    running coordinator adds looks missing.
    """
    report = Report()
    models = folder.root / "models"
    bundles = bundles_in(folder.disk, models)
    ledger = open_ledger()
    try:
        jobs = ledger.load()
        pushed = ledger.load_pushed()
        report.sizes.update(ledger.bundle_sizes())
        report.findings += _histories(ledger, jobs)
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
    indexed, faults = _index(folder, jobs, report)
    report.findings += faults
    referenced = indexed | {blob.artifact_id for one in pushed for blob in one.offer.blobs()}
    report.findings += _unreferenced(folder, bundles, jobs, report, referenced)
    report.findings += _parts(folder, report)
    report.findings += _logs(folder, jobs)
    return report


def _histories(ledger: Ledger, jobs: Mapping[str, Job]) -> Iterator[Finding]:
    for job in jobs.values():
        wrong = contradiction(job, ledger.events(job.job_id, _MAX_EVENTS))
        if wrong:
            remedy = "the coordinator goes by the row; a backup may have the whole history"
            yield Finding("history", f"job {job.spec.name}", wrong, remedy=remedy)


def _bundles(
    folder: Folder, bundles: Mapping[str, Path], jobs: Mapping[str, Job], report: Report
) -> Iterator[Finding]:
    """Hash every artifact; note those that are what their names say."""
    holders = {job.artifact_id: job for job in jobs.values()}
    for artifact_id, path in bundles.items():
        try:
            digest, size_bytes = sha256_of(folder.disk, path)
        except OSError as error:
            report.unread.add(artifact_id)
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
        yield Finding("damaged", str(path), what, Repair("move", path), remedy)


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


def _index(
    folder: Folder, jobs: Mapping[str, Job], report: Report
) -> tuple[set[str], list[Finding]]:
    """Return the artifacts that the index names, and its faults: each has the same repair.

    Rows of earlier attempts are history and stay; so do those of artifacts that cannot be read.
    """
    path = folder.root / "models" / INDEX
    attempts = ended(jobs.values())
    due = {row_key(row): row for row in _rows_due(folder, jobs, report)}
    kept: dict[Key, bytes] = {}
    faults: list[str] = []
    for number, line in enumerate(_lines(folder, path), 1):
        row = row_in(line)
        key = ("", "", "") if row is None else row_key(row)
        fault = ""
        if row is None:
            fault = "is torn or no row"
        elif key in kept:
            fault = "repeats an earlier one"
        elif key[-1] not in report.sizes and key[-1] not in report.unread:
            fault = f"names artifact {key[-1][:12]!a}, which is not in the store"
        elif not folder.running and not is_known(key, attempts):
            fault = f"names a result of attempt {key[1][:12]}, of which the ledger does not know"
        elif wrong := _differences(row, due.get(key, {})):
            fault = f"does not agree with the ledger in {', '.join(wrong)}"
            kept[key] = row_line(due[key])
        else:
            kept[key] = line
        if fault:
            faults.append(f"line {number} {fault}")
    for key, row in due.items():
        if key not in kept:
            faults.append(f"lacks job {row['name']}, attempt {row['attempt']}")
            kept[key] = row_line(row)
    repair = Repair("write", path, b"".join(line + b"\n" for line in kept.values()))
    named = {artifact_id for _, _, artifact_id in kept}
    return named, [Finding("index", str(path), fault, repair) for fault in faults]


def _lines(folder: Folder, path: Path) -> list[bytes]:
    if folder.disk.size_bytes(path) is None:
        return []
    *lines, last = read(folder.disk, path).split(b"\n")
    if last and not folder.running:  # a coordinator may just be writing it
        lines.append(last + b"\0")  # a line without an end was torn, whatever it holds
    return lines


def _differences(row: Mapping[str, Any], due: Mapping[str, Any]) -> list[str]:
    # A job may be renamed after it is completed; a row has the name of its day.
    return [name for name, value in due.items() if name != "name" and row.get(name, value) != value]


def _rows_due(folder: Folder, jobs: Mapping[str, Job], report: Report) -> Iterator[dict[str, Any]]:
    """Yield the rows of the completed jobs that must be in the index by now."""
    for job in jobs.values():
        size_bytes = report.sizes.get(job.artifact_id or "")
        age_s = folder.now_wall_s - _moment_s(job.finished_at)
        is_completed = job.state is JobState.COMPLETED and not folder.is_settling(age_s)
        if is_completed and size_bytes is not None:
            yield json.loads(json.dumps(index_row(job, size_bytes)))


def _moment_s(text: str | None) -> float:
    try:
        return datetime.fromisoformat(text or "").timestamp()
    except ValueError:
        return 0.0


def _unreferenced(
    folder: Folder,
    bundles: Mapping[str, Path],
    jobs: Mapping[str, Job],
    report: Report,
    indexed: set[str],
) -> Iterator[Finding]:
    wanted = indexed | {job.artifact_id for job in jobs.values() if job.artifact_id is not None}
    for artifact_id, path in bundles.items():
        # The coordinator itself deletes a checkpoint that no job goes on from.
        whole = artifact_id in report.sizes and not is_checkpoint(path)
        spare = whole and artifact_id not in wanted
        if spare and not folder.is_settling(folder.age_s(path)):
            what = "neither a job nor the index refers to it"
            yield Finding("unreferenced", str(path), what, remedy="delete it if nobody needs it")


def _parts(folder: Folder, report: Report) -> Iterator[Finding]:
    disk, incoming = folder.disk, folder.root / "incoming"
    for part in disk.glob(incoming, "*.part"):
        age_s = folder.age_s(part)
        if age_s > PARTS_KEPT_S:
            what = f"untouched for {age_s / 86400:.0f} days"
        elif part.stem in report.sizes:
            what = "its artifact is in the store"
        else:
            continue
        yield Finding("part", str(part), what, Repair("delete", part))
    for listed in disk.glob(incoming, "*.json"):
        wrong = _list_fault(disk, listed)
        if wrong and not folder.is_settling(folder.age_s(listed)):
            yield Finding("part", str(listed), wrong, Repair("delete", listed))
    for place in (folder.root, incoming, folder.root / "models"):
        for making in disk.glob(place, "*.making"):
            if not folder.is_settling(folder.age_s(making)):
                yield Finding("part", str(making), "left by a crash", Repair("delete", making))


def _list_fault(disk: RealDisk, listed: Path) -> str:
    """Return why a list of chunks is of no use, or nothing; without it the upload starts over."""
    on_disk_bytes = disk.size_bytes(listed.with_suffix(".part"))
    if on_disk_bytes is None:
        return "its part file is not there"
    try:
        found = json.loads(read(disk, listed))
        reached = max((stop for _, stop in found["have"]), default=0)
        claimed_bytes = min(found["size_bytes"], reached * found["chunk_bytes"])
    except (OSError, ValueError, KeyError, TypeError):
        return "cannot be read"
    if claimed_bytes > on_disk_bytes:
        return f"claims {claimed_bytes} bytes, the part file has {on_disk_bytes}"
    return ""


def _logs(folder: Folder, jobs: Mapping[str, Job]) -> Iterator[Finding]:
    for path in folder.disk.glob(folder.root / "logs", "*.log"):
        named = _LOG.fullmatch(path.name)
        if named and named[1] not in jobs and not folder.is_settling(folder.age_s(path)):
            what = "the ledger does not know its job"
            yield Finding("log", str(path), what, remedy="delete it if nobody needs it")
