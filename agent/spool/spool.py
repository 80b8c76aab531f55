"""Finished work on disk until the coordinator has it: reports as JSON, bundles by their hash.

A small bundle stands in its report as well, so that one flush makes both durable: its file may be
gone after a power cut, and is written anew at the next start.

Every file name is built from ids that a message model has checked.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import logging
from collections.abc import Callable, Container
from functools import cache
from pathlib import Path
from typing import Annotated, Final

from pydantic import ConfigDict, Field, TypeAdapter

from agent.core.effects import Left, Unbundled
from broker.errors import BadMessage, plain
from broker.protocol.messages import (
    MAX_PAYLOAD_BYTES,
    MAX_SMALL_BYTES,
    Failed,
    Finished,
    decode,
    encode,
)
from broker.system.bundle import BundleInfo, make_bundle
from broker.system.files import RealDisk, read, write_atomically

log = logging.getLogger("fleet.agent")

_REPORT: Final[TypeAdapter[Finished | Failed]] = TypeAdapter(
    Annotated[Finished | Failed, Field(discriminator="type")], config=ConfigDict(defer_build=True)
)
UNBUNDLED_FILE: Final = "unbundled.json"  # in a work folder
REFUSED_KEPT_S: Final = 7 * 86_400.0
MOST_REFUSED: Final = 10
WHY_FILE: Final = "why.txt"


@cache
def _unbundled() -> TypeAdapter[Unbundled]:
    return TypeAdapter(Unbundled)  # a dataclass, and few agents ever need it


def _make_bundle(folder: Path, out: Path) -> BundleInfo:
    return make_bundle(folder, out, unsynced_bytes=MAX_SMALL_BYTES)


class Spool:
    """The folders of an agent's results.

    `spool/` has reports and bundles, `work/` a folder an attempt, `refused/` those of them that no
    bundle can be made of, for their owner.
    """

    def __init__(
        self,
        state: Path,
        disk: RealDisk | None = None,
        bundler: Callable[[Path, Path], BundleInfo] = _make_bundle,
    ) -> None:
        """Make the folders under the agent's state folder.

        `bundler` makes one file of a folder, durably unless that is small.
        """
        self._disk = disk or RealDisk()
        self._bundler = bundler
        self._spool = state / "spool"
        self._work = state / "work"
        self._refused = state / "refused"
        self._disk.make_folder(self._spool)
        self._disk.make_folder(self._work)

    @property
    def folder(self) -> Path:
        """The folder of reports and bundles."""
        return self._spool

    def work(self, job_id: str, attempt: int) -> Path:
        """Return the work folder of an attempt."""
        return self._work / f"{job_id}.{attempt}"

    def bundle_path(self, artifact_id: str) -> Path:
        """Return where a bundle lies."""
        return self._spool / f"{artifact_id}.tar.zst"

    def make_bundle(self, job_id: str, attempt: int) -> tuple[str, int]:
        """Bundle an attempt's output; return the artifact's id and its size in bytes."""
        making = self._spool / f"{job_id}.{attempt}.making"
        info = self._bundler(self.work(job_id, attempt) / "out", making)
        self._disk.replace(making, self.bundle_path(info.artifact_id))
        return info.artifact_id, info.size_bytes

    def keep(self, report: Finished | Failed, data: bytes = b"") -> None:
        """Write a report to disk, durably, and `data`, its bundle, if that is small.

        `drop_work` may follow.
        """
        if data:
            report = report.model_copy(update={"bundle": base64.b64encode(data).decode()})
        write_atomically(
            self._disk, self._report_path(report.job_id, report.attempt), encode(report)
        )
        self._disk.sync_folder(self._spool)

    def keep_unbundled(self, left: Unbundled) -> None:
        """Have what a trainer wrote outlive this process: the next one bundles it."""
        work = self.work(left.assign.job_id, left.assign.attempt)
        write_atomically(self._disk, work / UNBUNDLED_FILE, _unbundled().dump_json(left))
        self._disk.sync_folder(work)
        self._disk.sync_folder(self._work)

    def take_over(self, was_at: Callable[[str, int], bool]) -> Left:
        """Return what an earlier process has left, and delete the rest.

        `was_at` tells whether an attempt has left a checkpoint.
        """
        reports = self.load()
        reported = {self.work(report.job_id, report.attempt) for report in reports}
        unbundled = self._load_unbundled(reported)
        kept = {self.work(left.assign.job_id, left.assign.attempt) for left in unbundled}
        interrupted: list[tuple[str, int]] = []
        for work in self.work_folders():
            job_id, _, attempt = work.name.rpartition(".")
            if work in kept:
                continue
            if work not in reported and attempt.isdecimal() and was_at(job_id, int(attempt)):
                interrupted.append((job_id, int(attempt)))
            else:
                self._disk.remove_tree(work)
        return Left(reports, unbundled, interrupted)

    def _load_unbundled(self, reported: Container[Path]) -> list[Unbundled]:
        """Return what was not bundled, but for the work folders of which there is a report.

        Whatever is not usable is left out: the job is trained anew.
        """
        found: dict[str, Unbundled] = {}
        for path in self._disk.glob(self._work, f"*/{UNBUNDLED_FILE}"):
            try:
                left = decode(_unbundled(), read(self._disk, path), 4 * MAX_PAYLOAD_BYTES)
            except (OSError, BadMessage) as error:
                log.warning("work folder %s is not usable: %s", path.parent.name, plain(error))
                continue
            key = (left.assign.job_id, left.assign.attempt)
            older = found.get(key[0])
            is_newest = older is None or older.assign.attempt < key[1]
            work = self.work(*key)
            if work == path.parent and work not in reported and is_newest:
                found[key[0]] = left
        return list(found.values())

    def set_aside(self, job_id: str, attempt: int, why: str) -> Path:
        """Keep the work folder of an attempt of which no bundle can be made; return where it is.

        It stays for `REFUSED_KEPT_S`, unless there are more than `MOST_REFUSED`.
        """
        work = self.work(job_id, attempt)
        kept = self._refused / work.name
        self._disk.make_folder(self._refused)
        self._disk.replace(work, kept)
        self.collect_refused()
        with contextlib.suppress(OSError):
            write_atomically(self._disk, kept / WHY_FILE, f"{why}\n".encode())
        return kept

    def collect_refused(self, now_wall_s: float = 0.0) -> None:
        """Delete what was set aside long ago, and all but the newest few."""
        disk = self._disk
        folders = sorted(disk.glob(self._refused, "*"), key=disk.modified_s, reverse=True)
        for at, folder in enumerate(folders):
            if at >= MOST_REFUSED or now_wall_s - disk.modified_s(folder) > REFUSED_KEPT_S:
                disk.remove_tree(folder)

    def drop_work(self, job_id: str, attempt: int) -> None:
        """Delete the work folder of an attempt whose report is kept."""
        self._disk.remove_tree(self.work(job_id, attempt))

    def load(self) -> list[Finished | Failed]:
        """Return the reports of an earlier process, and delete what belongs to none of them.

        A report that the disk does not give back now is left, with all bundles, for another start.
        """
        disk = self._disk
        disk.sync_folder(self._spool)  # a killed process may have left names that are not durable
        reports: list[Finished | Failed] = []
        garbage = ["*.making*", "*.tar.zst"]
        for path in disk.glob(self._spool, "*.json"):
            try:
                report = decode(_REPORT, read(disk, path))
            except OSError as error:
                log.error("spool: %s cannot be read, and stays: %s", path.name, plain(error))
                garbage = ["*.making*"]
                continue
            except BadMessage as error:
                log.warning("spool: %s is not usable and is left out: %s", path.name, plain(error))
                disk.replace(path, path.with_suffix(".broken"))
                continue
            reports.append(self._without_bundle(report))
        kept = {self.bundle_path(r.artifact_id) for r in reports if isinstance(r, Finished)}
        for pattern in garbage:
            for path in disk.glob(self._spool, pattern):
                if path not in kept:
                    disk.unlink(path)
        return [r for r in reports if isinstance(r, Failed) or self._is_there(r)]

    def clear(self, job_id: str, attempt: int, artifact_id: str | None = None) -> None:
        """Delete the work folder of an attempt, its report, and a bundle."""
        self._disk.remove_tree(self.work(job_id, attempt))
        self._disk.unlink(self._report_path(job_id, attempt))
        if artifact_id is not None:
            self._disk.unlink(self.bundle_path(artifact_id))

    def has(self, artifact_id: str) -> bool:
        """Tell whether a bundle is there. Raises OSError where the disk does not say."""
        return self._disk.size_bytes(self.bundle_path(artifact_id)) is not None

    def is_whole(self, artifact_id: str) -> bool:
        """Hash a bundle again and tell whether it is what its name says."""
        with (
            contextlib.suppress(OSError),
            self._disk.open(self.bundle_path(artifact_id), "rb") as file,
        ):
            return hashlib.file_digest(file, "sha256").hexdigest() == artifact_id
        return False

    def read_whole(self, artifact_id: str) -> bytes:
        """Return a small bundle. Raises OSError. Any thread may do so."""
        return read(self._disk, self.bundle_path(artifact_id))

    def read(self, artifact_id: str, offset: int, length: int) -> bytes:
        """Return a piece of a bundle; shorter, or empty, if it is not there."""
        try:
            with self._disk.open(self.bundle_path(artifact_id), "rb") as file:
                file.seek(offset)
                piece: bytes = file.read(length)
                return piece
        except OSError as error:
            log.warning("spool: bundle %s cannot be read: %s", artifact_id[:12], plain(error))
            return b""

    def work_folders(self) -> list[Path]:
        """Return the work folders that an earlier process has left."""
        return self._disk.glob(self._work, "*")

    def _without_bundle(self, report: Finished | Failed) -> Finished | Failed:
        """See to it that a report's bundle is a file; while it cannot be, the report bears it."""
        if isinstance(report, Failed) or not report.bundle:
            return report
        try:
            if not self.is_whole(report.artifact_id):
                data = base64.b64decode(report.bundle)
                write_atomically(self._disk, self.bundle_path(report.artifact_id), data)
        except (OSError, ValueError) as error:
            log.warning("spool: %s; a bundle stays with its report", plain(error))
            return report
        return report.model_copy(update={"bundle": ""})

    def _is_there(self, report: Finished) -> bool:
        if report.bundle or self.has(report.artifact_id):
            return True
        log.warning("spool: the bundle of job %s is gone", report.job_id[:12])
        self._disk.unlink(self._report_path(report.job_id, report.attempt))
        return False

    def _report_path(self, job_id: str, attempt: int) -> Path:
        return self._spool / f"{job_id}.{attempt}.json"
