"""What a check of the state folder may find, and the few things that are safe to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from broker.system.files import Disk, write_atomically


@dataclass(frozen=True, slots=True)
class MoveAside:
    """Rename a damaged file, so that nobody takes it for a good one; its bytes stay."""

    path: Path

    @property
    def target(self) -> Path:
        """Where it goes."""
        return self.path.with_name(self.path.name + ".damaged")

    def __str__(self) -> str:
        return f"moves it to {self.target.name}"


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete what the coordinator itself would throw away, and the file that goes with it."""

    path: Path
    companion: Path | None = None

    def __str__(self) -> str:
        return "deletes it"


@dataclass(frozen=True, slots=True)
class WriteIndex:
    """Put a whole new index in the place of the old one."""

    path: Path
    data: bytes

    def __str__(self) -> str:
        return "rewrites the index"


Repair = MoveAside | Delete | WriteIndex


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    `where` is a path or a job, `what` the fault, `repair` what would mend it, if that is safe, and
    `remedy` what is left to a person.
    """

    kind: str
    where: str
    what: str
    repair: Repair | None = None
    remedy: str = ""

    def needs_a_person(self) -> bool:
        """Whether something is left to be done when the repair is done."""
        return self.repair is None or bool(self.remedy)


def carry_out(disk: Disk, findings: Sequence[Finding]) -> None:
    """Carry out every repair, each once. Raises OSError when the disk refuses one."""
    wanted = (finding.repair for finding in findings if finding.repair is not None)
    for repair in dict.fromkeys(wanted):
        match repair:
            case MoveAside(path):
                disk.replace(path, repair.target)
            case Delete(path, companion):
                disk.unlink(path)
                if companion is not None:
                    disk.unlink(companion)
            case WriteIndex(path, data):
                write_atomically(disk, path, data)
        disk.sync_folder(repair.path.parent)
