"""The part file of an artifact that is on its way in, and the list of chunks that are in it.

The list may lag behind the part file, never lead it: data is fsynced before the list that claims it
is written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from broker.errors import StorageError
from broker.stream.ranges import RangeSet
from broker.stream.stream import chunk_count
from broker.system.files import RealDisk, read, write_atomically

SYNC_EVERY_BYTES: Final = 16 * 1024 * 1024


class Part:
    """The part file of one artifact. All methods raise `StorageError` when the disk refuses.

    One thread writes, another does the rest. A disk that has failed once may have forgotten what it
    was given: nothing is claimed afterwards. Chunks that come in order are hashed on the way.
    """

    def __init__(
        self,
        disk: RealDisk,
        path: Path,
        artifact_id: str,
        size_bytes: int,
        chunk_bytes: int,
        have: RangeSet,
    ) -> None:
        """Open the file, which `Store.open_part` has prepared."""
        self._disk = disk
        self.path = path
        self.artifact_id = artifact_id
        self.size_bytes = size_bytes
        self.chunk_bytes = chunk_bytes
        self._have = have
        self._unsafe_bytes = 0
        self._is_claiming = False
        self._using = threading.Lock()
        self._failure: StorageError | None = None
        self._digest = hashlib.sha256()
        self._hashed_bytes = 0
        with storage(path):
            there = disk.size_bytes(path) is not None
            self._file: IO[bytes] = disk.open(path, "r+b" if there else "w+b")

    def write(self, index: int, data: bytes) -> None:
        """Write whole chunks to their place, from `index` on."""
        if self._failure is not None:
            raise self._failure
        offset = index * self.chunk_bytes
        with storage(self.path):
            self._file.seek(offset)
            self._file.write(data)
        self._have.add(index, index + chunk_count(len(data), self.chunk_bytes))
        self._unsafe_bytes += len(data)
        if offset == self._hashed_bytes:
            self._digest.update(data)
            self._hashed_bytes += len(data)

    def claim(self) -> RangeSet | None:
        """Return what `sync` is to claim, after every 16 MiB and one at a time; none: nothing."""
        if self._unsafe_bytes < SYNC_EVERY_BYTES or self._is_claiming:
            return None
        self._unsafe_bytes, self._is_claiming = 0, True
        return RangeSet(self._have)

    def sync(self, claimed: RangeSet | None = None) -> None:
        """Make the data durable, then the list of chunks that claims it, or all that are there."""
        listed = {
            "size_bytes": self.size_bytes,
            "chunk_bytes": self.chunk_bytes,
            "have": list(self._have if claimed is None else claimed),
        }
        with self._using:
            if self._file.closed:
                return
            try:
                with storage(self.path):
                    self._disk.sync(self._file)
                    data = json.dumps(listed).encode()
                    write_atomically(self._disk, self.path.with_suffix(".json"), data)
            except StorageError as error:
                self._failure = error
                raise
            finally:
                self._is_claiming = False

    def close(self) -> None:
        """Leave the part as it is, for a later go; closing twice does no harm."""
        if self._failure is None:
            with contextlib.suppress(StorageError):
                self.sync()
        self._release()

    def discard(self) -> None:
        """Delete the part."""
        self._release()
        for path in (self.path, self.path.with_suffix(".json")):
            with contextlib.suppress(OSError):
                self._disk.unlink(path)

    def seal(self) -> str:
        """Make the file durable and close it; return the sha256 of all of it, in hex."""
        if self._failure is not None:
            raise self._failure
        with storage(self.path):
            self._disk.sync(self._file)
            self._file.close()
            if self._hashed_bytes == self.size_bytes:
                return self._digest.hexdigest()
            return sha256_of(self._disk, self.path)[0]

    def _release(self) -> None:
        # A full disk refuses what is still buffered, too; the file is closed all the same.
        with self._using, contextlib.suppress(OSError):
            self._file.close()


def listed_chunks(disk: RealDisk, path: Path, size_bytes: int, chunk_bytes: int) -> RangeSet:
    """Return the chunks that are surely in a part file, if it is of this size and chunk size."""
    try:
        listed = json.loads(read(disk, path.with_suffix(".json")))
        same = (listed["size_bytes"], listed["chunk_bytes"]) == (size_bytes, chunk_bytes)
        ranges = [(int(start), int(stop)) for start, stop in listed["have"]]
        on_disk_bytes = disk.size_bytes(path) or 0
    except (OSError, ValueError, KeyError, TypeError):
        return RangeSet()
    most = chunk_count(size_bytes, chunk_bytes)
    inside = all(0 <= start < stop <= most for start, stop in ranges)
    reached_bytes = max((stop for _, stop in ranges), default=0) * chunk_bytes
    if not same or not inside or on_disk_bytes < min(size_bytes, reached_bytes):
        return RangeSet()
    return RangeSet(ranges)


def sha256_of(disk: RealDisk, path: Path) -> tuple[str, int]:
    """Return the sha256 of a file, in hex, and its size in bytes. Raises OSError."""
    with disk.open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()


@contextlib.contextmanager
def storage(path: Path) -> Iterator[None]:
    """Turn what the operating system says into a `StorageError` that names the path."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}; is the disk full?") from error
