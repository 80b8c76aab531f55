"""The store's index, `index.jsonl`: one JSON object a line for each result, appended as they come.

When the coordinator starts, rows of completed jobs that are missing are appended again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from broker.system.files import RealDisk, read, write_atomically
from coordinator.jobs.jobs import Job
from coordinator.store.partfile import storage

INDEX: Final = "index.jsonl"
Key = tuple[str, str, str]  # job, attempt in decimal, artifact


class IndexRows:
    """The rows of the index in `folder`. All methods raise `StorageError` when the disk refuses."""

    def __init__(self, disk: RealDisk, folder: Path) -> None:
        """Read the index; a last line that a crash has torn is cut off."""
        self._disk = disk
        self._folder = folder
        self._path = folder / INDEX
        self._keys: set[Key] = set()
        if disk.size_bytes(self._path) is None:
            return
        with storage(self._path):
            data = read(disk, self._path)
            whole = data[: data.rfind(b"\n") + 1]
            if whole != data:
                write_atomically(disk, self._path, whole)
        self._keys = {key for line in whole.splitlines() if (key := _key_in(line))}

    def append(self, row: Mapping[str, Any]) -> None:
        """Append a row, not durably; one that is there already is not repeated."""
        key = row_key(row)
        if key in self._keys:
            return
        with storage(self._path):
            before_bytes = self._disk.size_bytes(self._path) or 0
            try:
                with self._disk.open(self._path, "ab") as file:
                    file.write(row_line(row) + b"\n")
            except OSError:
                # Half a row would spoil the next one. The file is closed by now: before that its
                # buffer would be written again.
                with contextlib.suppress(OSError), self._disk.open(self._path, "r+b") as file:
                    file.truncate(before_bytes)
                raise
        self._keys.add(key)

    def keep(self, attempts: Mapping[str, int]) -> None:
        """Delete the rows of attempts that a restored ledger does not know; see `ended`."""
        if not all(is_known(key, attempts) for key in self._keys):
            self._write([line for key, line in self._rows() if is_known(key, attempts)])

    def compact(self, artifacts: Container[str]) -> None:
        """Leave one row for each job and each of these artifacts, the newest."""
        newest: dict[tuple[str, str], bytes] = {}
        count = 0
        for (job_id, _, artifact_id), line in self._rows():
            count += 1
            if artifact_id in artifacts:
                newest.pop((job_id, artifact_id), None)
                newest[job_id, artifact_id] = line
        if len(newest) < count:
            self._write([*newest.values()])

    def _rows(self) -> Iterator[tuple[Key, bytes]]:
        if self._disk.size_bytes(self._path) is None:
            return
        with storage(self._path):
            lines = read(self._disk, self._path).splitlines()
        for line in lines:
            if key := _key_in(line):
                yield key, line

    def _write(self, lines: Sequence[bytes]) -> None:
        with storage(self._path):
            write_atomically(self._disk, self._path, b"".join(line + b"\n" for line in lines))
            self._disk.sync_folder(self._folder)
        self._keys = {key for line in lines if (key := _key_in(line))}


def row_key(row: Mapping[str, Any]) -> Key:
    """Return what tells a row from others."""
    return str(row.get("job_id")), str(row.get("attempt")), str(row.get("artifact_id"))


def ended(jobs: Iterable[Job]) -> dict[str, int]:
    """Return the newest attempt of each job that has ended, 0 without one."""
    return {job.job_id: job.attempt - job.is_held for job in jobs}


def is_known(key: Key, attempts: Mapping[str, int]) -> bool:
    """Whether a row is of an attempt of its job that has ended."""
    job_id, attempt, _ = key
    return attempt.isdecimal() and 0 < int(attempt) <= attempts.get(job_id, 0)


def row_line(row: Mapping[str, Any]) -> bytes:
    """Return a row as a line, without its end."""
    return json.dumps(row, sort_keys=True, allow_nan=False).encode()


def row_in(line: bytes) -> dict[str, Any] | None:
    """Return the row in a line; none when it has none."""
    with contextlib.suppress(ValueError):
        row = json.loads(line)
        if isinstance(row, dict):
            return row
    return None


def _key_in(line: bytes) -> Key | None:
    row = row_in(line)
    return None if row is None else row_key(row)
