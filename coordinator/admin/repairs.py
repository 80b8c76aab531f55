"""What a check of the state folder may find, and the repairs that are safe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from broker.system.files import RealDisk, write_atomically


@dataclass(frozen=True, slots=True)
class MoveAside:
    """Rename a damaged file, so that nobody takes it for a good one; its bytes stay."""

    path: Path

    def __str__(self) -> str:
        return f"moves it to {self._target.name}"

    def carry_out(self, disk: RealDisk) -> None:
        """Rename it."""
        disk.replace(self.path, self._target)

    @property
    def _target(self) -> Path:
        return self.path.with_name(self.path.name + ".damaged")


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete what the coordinator would delete, and the file that belongs to it."""

    path: Path
    companion: Path | None = None

    def __str__(self) -> str:
        return "deletes it"

    def carry_out(self, disk: RealDisk) -> None:
        """Delete it."""
        disk.unlink(self.path)
        if self.companion is not None:
            disk.unlink(self.companion)


@dataclass(frozen=True, slots=True)
class WriteIndex:
    """Put a whole new index in the place of the old one."""

    path: Path
    data: bytes

    def __str__(self) -> str:
        return "rewrites the index"

    def carry_out(self, disk: RealDisk) -> None:
        """Write it."""
        write_atomically(disk, self.path, self.data)


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault (`what`) of a path or a job (`where`).

    `repair` mends it, if that is safe; `remedy` is left to a person.
    """

    kind: str
    where: str
    what: str
    repair: MoveAside | Delete | WriteIndex | None = None
    remedy: str = ""

    def needs_a_person(self) -> bool:
        """Whether something is left to be done when the repair is done."""
        return self.repair is None or bool(self.remedy)


def carry_out(disk: RealDisk, findings: Sequence[Finding]) -> None:
    """Carry out every repair, each once. Raises OSError when the disk refuses one."""
    repairs = (finding.repair for finding in findings if finding.repair is not None)
    for repair in dict.fromkeys(repairs):
        repair.carry_out(disk)
        disk.sync_folder(repair.path.parent)
