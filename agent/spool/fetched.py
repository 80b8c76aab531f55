"""What attempts fetch from the coordinator, each into a file of its own until it is whole.

    <root>/<job id>.<attempt>.fetching

Not by the artifact: two jobs may fetch the same one. Every name is built from ids that a message
model has checked.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from broker.errors import BadStream
from broker.programs.unusable import Unusable
from broker.system.files import RealDisk

SUFFIX: Final = ".fetching"


class Fetched:
    """The files that are on their way into a folder. All methods raise OSError."""

    def __init__(self, root: Path, disk: RealDisk, most_bytes: float = math.inf) -> None:
        """Drop what was half fetched. Nothing larger than `most_bytes` is taken."""
        self._root = root
        self._disk = disk
        self._most_bytes = most_bytes
        self._files: dict[Path, IO[bytes]] = {}
        for path in disk.glob(root, f"*{SUFFIX}"):
            disk.unlink(path)

    def write(self, job_id: str, attempt: int, offset: int, data: bytes) -> None:
        """Put a piece of what an attempt fetches in its place. Raises `Unusable` for too much."""
        if offset + len(data) > self._most_bytes:
            raise Unusable("too-large", limit_bytes=self._most_bytes)
        path = self._path(job_id, attempt)
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = self._disk.open(path, "w+b")
        file.seek(offset)
        file.write(data)

    @contextlib.contextmanager
    def whole(self, job_id: str, attempt: int, digest: str) -> Iterator[Path]:
        """Yield the file of what an attempt has fetched, and delete it then.

        Raises `BadStream` unless its bytes hash to the digest.
        """
        path = self._path(job_id, attempt)
        file = self._files.pop(path, None)
        if file is None:
            raise BadStream("it was given up, or nothing of it has come")
        try:
            with contextlib.closing(file):
                file.seek(0)
                found = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
            if found != digest:
                raise BadStream("its bytes have another hash")
            yield path
        finally:
            self._disk.unlink(path)

    def give_up(self, job_id: str, attempt: int) -> None:
        """Forget what an attempt fetches, if it does."""
        path = self._path(job_id, attempt)
        if (file := self._files.pop(path, None)) is not None:
            with contextlib.suppress(OSError):
                file.close()
            self._disk.unlink(path)

    def _path(self, job_id: str, attempt: int) -> Path:
        return self._root / f"{job_id}.{attempt}{SUFFIX}"
