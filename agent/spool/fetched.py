"""What attempts fetch from the coordinator, each into a file of its own until it is whole.

    <root>/<job id>.<attempt>.<number>.fetching

Not by the artifact: two jobs may fetch the same one. The number is new for each. Every name is
built from ids that a message model has checked.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from broker.errors import BadStream
from broker.programs.unusable import Unusable
from broker.system.files import RealDisk

SUFFIX: Final = ".fetching"


@dataclass(slots=True)
class _Coming:
    """A file that is on its way; what comes in order is hashed then."""

    path: Path
    file: IO[bytes]
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)
    hashed_bytes: int = 0

    def write(self, offset: int, data: bytes) -> None:
        self.file.seek(offset)
        self.file.write(data)
        if offset == self.hashed_bytes:
            self.digest.update(data)
            self.hashed_bytes += len(data)

    def close(self) -> str:
        """Return the sha256 of the whole file."""
        with contextlib.closing(self.file):
            if self.file.seek(0, io.SEEK_END) != self.hashed_bytes:
                self.file.seek(0)
                return hashlib.file_digest(self.file, "sha256").hexdigest()  # type: ignore[arg-type]
        return self.digest.hexdigest()


class Fetched:
    """The files that are on their way into a folder. All methods raise OSError."""

    def __init__(self, root: Path, disk: RealDisk, most_bytes: float = math.inf) -> None:
        """Drop what was half fetched. Nothing larger than `most_bytes` is taken."""
        self._root = root
        self._disk = disk
        self._most_bytes = most_bytes
        self._count = 0
        self._files: dict[tuple[str, int], _Coming] = {}
        for path in disk.glob(root, f"*{SUFFIX}"):
            disk.unlink(path)

    def write(self, job_id: str, attempt: int, offset: int, data: bytes) -> None:
        """Put a piece of what an attempt fetches in its place. Raises `Unusable` for too much."""
        if offset + len(data) > self._most_bytes:
            raise Unusable("too-large", limit_bytes=self._most_bytes)
        coming = self._files.get((job_id, attempt))
        if coming is None:
            self._count += 1
            path = self._root / f"{job_id}.{attempt}.{self._count}{SUFFIX}"
            coming = self._files[job_id, attempt] = _Coming(path, self._disk.open(path, "w+b"))
        coming.write(offset, data)

    @contextlib.contextmanager
    def whole(self, job_id: str, attempt: int, digest: str) -> Iterator[Path]:
        """Yield the file of what an attempt has fetched, and delete it then.

        The attempt may fetch another one meanwhile. Raises `BadStream` unless its bytes hash to the
        digest.
        """
        coming = self._files.pop((job_id, attempt), None)
        if coming is None:
            raise BadStream("it was given up, or nothing of it has come")
        try:
            if coming.close() != digest:
                raise BadStream("its bytes have another hash")
            yield coming.path
        finally:
            self._disk.unlink(coming.path)

    def give_up(self, job_id: str, attempt: int) -> None:
        """Forget what an attempt fetches, if it does."""
        if (coming := self._files.pop((job_id, attempt), None)) is not None:
            with contextlib.suppress(OSError):
                coming.file.close()
            self._disk.unlink(coming.path)
