"""The store's index beside the ledger: which rows are torn, repeated, missing or wrong."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.system.files import Disk, read
from coordinator.core.uploads import index_row
from coordinator.jobs.jobs import Job
from coordinator.store.index_rows import INDEX, Key, is_known, row_key
from coordinator.store.repairs import Finding, WriteIndex


@dataclass(frozen=True, slots=True)
class Index:
    """The index of the store at `root`, whose good artifacts have `sizes` in bytes.

    Of the artifacts in `unread` nobody knows whether they are good; their rows stay. `attempts`
    are the newest that have ended; none while a coordinator adds to them.
    """

    disk: Disk
    root: Path
    sizes: Mapping[str, int]
    unread: frozenset[str] = frozenset()
    attempts: Mapping[str, int] | None = None

    def compare(self, completed: Iterable[Job], *, running: bool) -> tuple[set[str], list[Finding]]:
        """Compare the rows with the jobs that are completed and settled, and with the artifacts.

        Returns the ids of the artifacts that the index names, and the findings; the repair of each
        is the same whole new index. Rows of earlier attempts are history and stay.
        """
        path = self.root / "models" / INDEX
        due = {row_key(row): row for row in self._rows_due(completed)}
        kept: dict[Key, bytes] = {}
        faults: list[str] = []
        for number, line in enumerate(self._lines(path, running=running), 1):
            row = _parsed(line)
            fault = self._fault(row, kept, due)
            if fault:
                faults.append(f"line {number} {fault}")
            if row is not None and self._may_stay(key := row_key(row)) and key not in kept:
                kept[key] = _line(due[key]) if fault else line
        for key, row in due.items():
            if key not in kept:
                faults.append(f"lacks job {row['name']}, attempt {row['attempt']}")
                kept[key] = _line(row)
        repair = WriteIndex(path, b"".join(line + b"\n" for line in kept.values()))
        named = {key[-1] for key in kept}
        return named, [Finding("index", str(path), fault, repair) for fault in faults]

    def _has(self, key: Key) -> bool:
        return key[-1] in self.sizes or key[-1] in self.unread

    def _may_stay(self, key: Key) -> bool:
        return self._has(key) and (self.attempts is None or is_known(key, self.attempts))

    def _rows_due(self, completed: Iterable[Job]) -> Iterator[dict[str, Any]]:
        for job in completed:
            size_bytes = self.sizes.get(job.artifact_id or "")
            if size_bytes is not None:
                yield json.loads(json.dumps(index_row(job, size_bytes)))

    def _lines(self, path: Path, *, running: bool) -> list[bytes]:
        if self.disk.size_bytes(path) is None:
            return []
        *lines, last = read(self.disk, path).split(b"\n")
        if last and not running:  # a coordinator may just be writing it
            lines.append(last + b"\0")  # a line without an end was torn, whatever it holds
        return lines

    def _fault(
        self, row: dict[str, Any] | None, kept: Container[Key], due: Mapping[Key, dict[str, Any]]
    ) -> str:
        if row is None:
            return "is torn or no row"
        key = row_key(row)
        if key in kept:
            return "repeats an earlier one"
        if not self._has(key):
            return f"names artifact {key[-1][:12]!a}, which is not in the store"
        if not self._may_stay(key):
            return f"names a result of attempt {key[1][:12]}, of which the ledger does not know"
        # A job may be renamed after it is completed; a row tells the name of its day.
        wrong = [
            name
            for name, value in due.get(key, {}).items()
            if name != "name" and name in row and row[name] != value
        ]
        return f"does not agree with the ledger in {', '.join(wrong)}" if wrong else ""


def _parsed(line: bytes) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError):
        row = json.loads(line)
        if isinstance(row, dict):
            return row
    return None


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, sort_keys=True, allow_nan=False).encode()
