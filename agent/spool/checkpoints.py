"""Where trainers leave off: a folder a job, kept from one attempt to the next.

    <state>/checkpoints/<job id>/files/      the trainer's own
    <state>/checkpoints/<job id>/attempt     the attempt that was given the folder last
    <state>/checkpoints/<job id>.<attempt>.fetching    one that is on its way here

Every name is built from ids that a message model has checked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container
from pathlib import Path
from typing import Final

from agent.spool.fetched import SUFFIX, Fetched
from broker.system.bundle import BundleInfo, make_bundle
from broker.system.files import RealDisk, read, write_atomically

KEPT_S: Final = 7 * 86_400.0  # of a job that has gone elsewhere, or nowhere


def _unpack(part: Path, into: Path) -> None:
    from broker.system.archive import unpack  # with the first one that comes

    unpack(part, into)


class Checkpoints:
    """The folder `checkpoints/`. All methods raise OSError when the disk refuses."""

    def __init__(
        self,
        state: Path,
        disk: RealDisk | None = None,
        bundler: Callable[[Path, Path], BundleInfo] = make_bundle,
        unpacker: Callable[[Path, Path], object] = _unpack,
    ) -> None:
        """Make the folder under the agent's state folder; drop what was half fetched."""
        self._disk = disk or RealDisk()
        self._bundler = bundler
        self._unpacker = unpacker
        self._root = state / "checkpoints"
        self._disk.make_folder(self._root)
        self.fetched = Fetched(self._root, self._disk)

    def files(self, job_id: str) -> Path:
        """Return the folder that the job's trainer may keep its checkpoint in."""
        return self._root / job_id / "files"

    def begin(self, job_id: str, attempt: int, void_attempt: int = 0) -> bool:
        """Give the folder to an attempt; return whether there is something to go on from.

        What attempts up to `void_attempt` have left is deleted: an operator has requeued the job.
        """
        if not self.is_here(job_id, void_attempt + 1):
            self.drop(job_id)
        self._disk.make_folder(self.files(job_id))
        write_atomically(self._disk, self._marker(job_id), str(attempt).encode())
        return self._has_files(job_id)

    def is_here(self, job_id: str, made_by: int) -> bool:
        """Whether what lies here is at least as new as the checkpoint of the attempt `made_by`."""
        return self._given(job_id) >= made_by and self._has_files(job_id)

    def was_at(self, job_id: str, attempt: int) -> bool:
        """Whether this attempt was the last to be given the folder, and has left something."""
        return self._given(job_id) == attempt and self._has_files(job_id)

    def bundle(self, job_id: str, spool: Path) -> BundleInfo | None:
        """Bundle a job's checkpoint into the folder `spool`, by its hash; none if there is none."""
        if not self._has_files(job_id):
            return None
        making = spool / f"{job_id}.checkpoint.making"
        info = self._bundler(self.files(job_id), making)
        self._disk.replace(making, spool / f"{info.artifact_id}.tar.zst")
        return info

    def install(self, job_id: str, attempt: int, artifact_id: str, made_by: int) -> None:
        """Make what an attempt has fetched the job's checkpoint, of the attempt `made_by`.

        Raises `BadStream` when it is not what was meant.
        """
        with self.fetched.whole(job_id, attempt, artifact_id) as part:
            self.drop(job_id)
            self._disk.make_folder(self._root / job_id)
            self._unpacker(part, self.files(job_id))
            write_atomically(self._disk, self._marker(job_id), str(made_by).encode())

    def drop(self, job_id: str) -> None:
        """Delete a job's checkpoint."""
        self._disk.remove_tree(self._root / job_id)

    def collect(self, now_wall_s: float, running: Container[str] = ()) -> None:
        """Delete what no attempt was given, or has written, for long: those jobs went elsewhere.

        `running` are jobs that do now, for as long as they like: not every trainer writes there.
        """
        for folder in self._disk.glob(self._root, "*"):
            if folder.suffix == SUFFIX or folder.name in running:
                continue
            with contextlib.suppress(OSError):
                if now_wall_s - self._written_s(folder) > KEPT_S:
                    self._disk.remove_tree(folder)

    def _written_s(self, folder: Path) -> float:
        disk = self._disk
        paths = (*disk.glob(folder, "attempt"), *disk.glob(folder, "files/*"))
        return max((disk.modified_s(path) for path in paths), default=0.0)

    def _given(self, job_id: str) -> int:
        """Return the attempt that was given the folder last, 0 if that is not known."""
        try:
            return int(read(self._disk, self._marker(job_id)))
        except (OSError, ValueError):
            return 0

    def _has_files(self, job_id: str) -> bool:
        return bool(self._disk.glob(self.files(job_id), "*"))

    def _marker(self, job_id: str) -> Path:
        return self._root / job_id / "attempt"
