"""What a check of the state folder may find, and the repairs that are safe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from broker.system.files import RealDisk, write_atomically


@dataclass(frozen=True, slots=True)
class Repair:
    """What is done about a file: `move` keeps its bytes, `write` puts `data` in their place."""

    how: Literal["move", "delete", "write"]
    path: Path
    data: bytes = b""

    def __str__(self) -> str:
        words = {"delete": "deletes it", "write": "rewrites the index"}
        return words.get(self.how, f"moves it to {self._aside().name}")

    def carry_out(self, disk: RealDisk) -> None:
        """Do it; the list of a part file's chunks goes with it."""
        if self.how == "write":
            write_atomically(disk, self.path, self.data)
        elif self.how == "move":
            disk.replace(self.path, self._aside())
        else:
            disk.unlink(self.path)
            if self.path.suffix == ".part":
                disk.unlink(self.path.with_suffix(".json"))

    def _aside(self) -> Path:
        return self.path.with_name(self.path.name + ".damaged")


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault (`what`) of a path or a job (`where`).

    `repair` mends it, if that is safe; `remedy` is left to a person.
    """

    kind: str
    where: str
    what: str
    repair: Repair | None = None
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
