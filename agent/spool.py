"""Finished work on disk until the coordinator has it: reports as JSON, bundles by their hash.

Every file name is built from ids that a message model has checked.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, TypeAdapter

from agent.bundle import make_bundle
from broker.errors import BadMessage
from broker.messages import Failed, Finished, decode, encode

log = logging.getLogger("fleet.agent")

_REPORT: Final[TypeAdapter[Finished | Failed]] = TypeAdapter(
    Annotated[Finished | Failed, Field(discriminator="type")]
)
_BLOCK_BYTES: Final = 1024 * 1024


class Spool:
    """The folder `spool/` (reports and bundles) and the folder `work/` (one folder an attempt)."""

    def __init__(self, state: Path) -> None:
        """Make the folders under the agent's state folder."""
        self._spool = state / "spool"
        self._work = state / "work"
        self._spool.mkdir(parents=True, exist_ok=True)
        self._work.mkdir(parents=True, exist_ok=True)

    def work(self, job_id: str, attempt: int) -> Path:
        """Return the work folder of an attempt."""
        return self._work / f"{job_id}.{attempt}"

    def bundle_path(self, artifact_id: str) -> Path:
        """Return where a bundle lies."""
        return self._spool / f"{artifact_id}.tar.zst"

    def make_bundle(self, job_id: str, attempt: int) -> tuple[str, int]:
        """Bundle an attempt's output; return the artifact's id and its size in bytes."""
        making = self._spool / f"{job_id}.{attempt}.making"
        info = make_bundle(self.work(job_id, attempt) / "out", making)
        making.replace(self.bundle_path(info.artifact_id))
        return info.artifact_id, info.size_bytes

    def keep(self, report: Finished | Failed) -> None:
        """Write a report to disk, durably; the work folder is no longer needed then."""
        path = self._report_path(report.job_id, report.attempt)
        making = path.with_suffix(".making")
        with making.open("wb") as file:
            file.write(encode(report))
            file.flush()
            os.fsync(file.fileno())
        making.replace(path)
        _sync_folder(self._spool)
        shutil.rmtree(self.work(report.job_id, report.attempt), ignore_errors=True)

    def load(self) -> list[Finished | Failed]:
        """Return the reports of an earlier process, and delete what belongs to none of them."""
        reports: list[Finished | Failed] = []
        for path in sorted(self._spool.glob("*.json")):
            try:
                report = decode(_REPORT, path.read_bytes())
            except (OSError, BadMessage) as error:
                log.warning("spool: %s is not usable and is left out: %s", path.name, error)
                path.replace(path.with_suffix(".broken"))
                continue
            reports.append(report)
        kept = {self.bundle_path(r.artifact_id) for r in reports if isinstance(r, Finished)}
        for path in [*self._spool.glob("*.tar.zst"), *self._spool.glob("*.making")]:
            if path not in kept:
                path.unlink(missing_ok=True)
        return [r for r in reports if isinstance(r, Failed) or self._is_there(r)]

    def clear(self, job_id: str, attempt: int) -> None:
        """Delete the work folder of an attempt, its report and its bundle."""
        shutil.rmtree(self.work(job_id, attempt), ignore_errors=True)
        path = self._report_path(job_id, attempt)
        with contextlib.suppress(OSError, BadMessage):
            report = decode(_REPORT, path.read_bytes())
            path.unlink()
            if isinstance(report, Finished):
                self.bundle_path(report.artifact_id).unlink(missing_ok=True)

    def is_whole(self, artifact_id: str) -> bool:
        """Hash a bundle again and tell whether it is what its name says."""
        digest = hashlib.sha256()
        try:
            with self.bundle_path(artifact_id).open("rb") as file:
                while block := file.read(_BLOCK_BYTES):
                    digest.update(block)
        except OSError:
            return False
        return digest.hexdigest() == artifact_id

    def read(self, artifact_id: str, offset: int, length: int) -> bytes:
        """Return a piece of a bundle; shorter, or empty, if it is not there."""
        try:
            with self.bundle_path(artifact_id).open("rb") as file:
                file.seek(offset)
                return file.read(length)
        except OSError as error:
            log.warning("spool: bundle %s cannot be read: %s", artifact_id[:12], error)
            return b""

    def clear_work(self) -> None:
        """Delete every work folder: nothing of an earlier process goes on."""
        for work in self.work_folders():
            shutil.rmtree(work, ignore_errors=True)

    def work_folders(self) -> list[Path]:
        """Return the work folders that an earlier process has left."""
        return [path for path in self._work.iterdir() if path.is_dir()]

    def _is_there(self, report: Finished) -> bool:
        if self.bundle_path(report.artifact_id).is_file():
            return True
        log.warning("spool: the bundle of job %s is gone", report.job_id[:12])
        self._report_path(report.job_id, report.attempt).unlink(missing_ok=True)
        return False

    def _report_path(self, job_id: str, attempt: int) -> Path:
        return self._spool / f"{job_id}.{attempt}.json"


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
