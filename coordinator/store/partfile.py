"""The part file of an artifact that is on its way in: written, hashed, made durable, sealed.

The list of chunks may lag behind the part file, never lead it: data is fsynced before the list that
claims it is written.
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
from broker.system.files import Disk, write_atomically

SYNC_EVERY_BYTES: Final = 16 * 1024 * 1024
CATCH_UP_BYTES: Final = 4 * 1024 * 1024  # at a time: whoever writes has more to do
_BLOCK_BYTES: Final = 1024 * 1024


class Part:
    """The part file of one artifact. All methods raise `StorageError` when the disk refuses.

    One thread writes. Another may `sync` meanwhile, and what ends the part waits for it; when that
    fails, so does the next write. The sha256 is taken along, as far as the file is whole from its
    beginning: at the end little is left to read.
    """

    def __init__(
        self,
        disk: Disk,
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
        self._syncing = threading.Lock()
        self._claim: list[tuple[int, int]] | None = None  # what the next `sync` makes durable
        self._failure: StorageError | None = None
        self._digest = hashlib.sha256()
        self._hashed_bytes = 0
        with storage(path):
            there = disk.size_bytes(path) is not None
            self._file: IO[bytes] = disk.open(path, "r+b" if there else "w+b")

    def write(self, index: int, data: bytes) -> None:
        """Write whole chunks, the first of which is `index`, to their place."""
        offset = index * self.chunk_bytes
        self._raise_failure()
        with storage(self.path):
            self._file.seek(offset)
            self._file.write(data)
            self._have.add(index, index + chunk_count(len(data), self.chunk_bytes))
            if offset == self._hashed_bytes:
                self._digest.update(data)
                self._hashed_bytes += len(data)
            else:
                self._catch_up(CATCH_UP_BYTES)
        self._unsafe_bytes += len(data)

    def wants_sync(self) -> bool:
        """Whether much was written since the last `sync`; says so once, and is for the writer."""
        if self._unsafe_bytes < SYNC_EVERY_BYTES or self._claim is not None:
            return False
        self._unsafe_bytes, self._claim = 0, list(self._have)
        return True

    def sync(self) -> None:
        """Make the data durable, then the list of chunks that claims it.

        Beside the thread that writes, only what `wants_sync` spoke of is claimed. A disk that has
        failed once may have forgotten what it was given: that is never relied upon.
        """
        with self._syncing:
            if self._file.closed:
                return
            claimed = list(self._have) if self._claim is None else self._claim
            try:
                with storage(self.path):
                    self._disk.sync(self._file)
                    self._disk.forget(self._file, self._hashed_bytes)
                    listed = {
                        "size_bytes": self.size_bytes,
                        "chunk_bytes": self.chunk_bytes,
                        "have": claimed,
                    }
                    list_path = self.path.with_suffix(".json")
                    write_atomically(self._disk, list_path, json.dumps(listed).encode())
            except StorageError as error:
                self._failure = error
                raise
            finally:
                self._claim = None

    def close(self) -> None:
        """Leave the part as it is, for a later go; closing twice does no harm."""
        if self._failure is None:
            self._claim = None
            with contextlib.suppress(StorageError):
                self.sync()
        self._release()

    def close_file(self) -> None:
        """Close the file, so that it can be renamed everywhere."""
        with self._syncing, storage(self.path):
            self._file.close()

    def discard(self) -> None:
        """Delete the part."""
        self._release()
        for path in (self.path, self.path.with_suffix(".json")):
            with contextlib.suppress(OSError):
                self._disk.unlink(path)

    def _release(self) -> None:
        # A full disk refuses what is still buffered, too; the file is closed all the same.
        with self._syncing, contextlib.suppress(OSError):
            self._file.close()

    def seal(self) -> str:
        """Flush everything to the disk and return the sha256 of the whole file, in hex."""
        self._raise_failure()
        with self._syncing, storage(self.path):
            self._disk.sync(self._file)
            self._catch_up(self.size_bytes)
        return self._digest.hexdigest()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise StorageError(str(self._failure))

    def _catch_up(self, most_bytes: int) -> None:
        """Hash what came before its turn, or was there already; it is read again for that."""
        first = self._have.first_range()
        whole_bytes = first[1] * self.chunk_bytes if first and first[0] == 0 else 0
        end = min(whole_bytes, self.size_bytes, self._hashed_bytes + most_bytes)
        if self._hashed_bytes < end:
            self._file.seek(self._hashed_bytes)
        while self._hashed_bytes < end:
            block = self._file.read(min(_BLOCK_BYTES, end - self._hashed_bytes))
            if not block:
                return  # cut short behind our back: the hash will tell
            self._digest.update(block)
            self._hashed_bytes += len(block)


@contextlib.contextmanager
def storage(path: Path) -> Iterator[None]:
    """Turn what the operating system says into a `StorageError` that names the path."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}; is the disk full?") from error
