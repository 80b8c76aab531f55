"""Parcels on this host, unpacked, each in a folder by its sha256.

    <root>/<digest>/                       the program's files
    <root>/<digest>.used                   written at each use
    <root>/<job id>.<attempt>.fetching     a parcel that is on its way here, see `Fetched`

A parcel is unpacked beside its place once its bytes hash to its name, and then renamed: what is
there is whole.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Container
from pathlib import Path
from typing import Final

from agent.spool.fetched import Fetched
from broker.errors import BadStream
from broker.system.files import RealDisk, write_atomically

UNPACKED_BYTES: Final = 64 * 1024**2  # as `broker.programs.packing` packs at most
MAX_BYTES: Final = UNPACKED_BYTES + 16 * 1024**2  # of the bundle: what does not compress, and names
KEPT_S: Final = 3600.0  # since its last use; what was found a moment ago is about to be started
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def _unpack(part: Path, into: Path) -> None:
    from broker.system.archive import Limits, unpack  # with the first one that comes

    unpack(part, into, Limits(total_bytes=UNPACKED_BYTES), durable=True)


def _size_bytes(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())


class Parcels:
    """The folder of parcels. Its methods may be called on any thread.

    All raise OSError when the disk refuses.
    """

    def __init__(
        self,
        root: Path,
        limit_bytes: float,
        disk: RealDisk | None = None,
        unpacker: Callable[[Path, Path], object] = _unpack,
        size_of: Callable[[Path], int] = _size_bytes,
    ) -> None:
        """Make the folder; drop what was half fetched or half unpacked."""
        self._root = root
        self._limit_bytes = limit_bytes
        self._disk = disk or RealDisk()
        self._unpacker = unpacker
        self._size_of = size_of
        self._marking = threading.Lock()  # of marks of use: what is marked is not deleted
        self._unpacking = threading.Lock()
        self._disk.make_folder(root)
        self.fetched = Fetched(root, self._disk, MAX_BYTES)
        for path in self._disk.glob(root, "*"):
            if not _DIGEST.fullmatch(path.name.removesuffix(".used")):
                self._disk.remove_tree(path)

    def folder(self, digest: str) -> Path | None:
        """Return the folder of a parcel that is here, and note its use; none if it is not here."""
        path = self._path(digest)
        with self._marking:
            if not self._disk.glob(self._root, digest):
                return None
            write_atomically(self._disk, self._used(path), b"", durable=False)
        return path

    def install(self, job_id: str, attempt: int, digest: str) -> None:
        """Unpack what an attempt has fetched. Raises `BadStream` when it is not what was meant."""
        path = self._path(digest)
        with self.fetched.whole(job_id, attempt, digest) as part:
            with self._unpacking, contextlib.suppress(FileExistsError):  # another was quicker
                self._unpacker(part, path)
            self.folder(digest)

    def collect(self, in_use: Container[str], now_wall_s: float) -> None:
        """Delete what was used least lately until the rest fits; nothing in use or used lately."""
        found = [one for one in self._disk.glob(self._root, "*") if _DIGEST.fullmatch(one.name)]
        found.sort(key=self._used_s)
        sizes = {path: self._size_of(path) for path in found}
        total_bytes = sum(sizes.values())
        for path in found:
            if total_bytes <= self._limit_bytes:
                return
            if path.name not in in_use and self._is_removed(path, now_wall_s):
                total_bytes -= sizes[path]

    def _is_removed(self, path: Path, now_wall_s: float) -> bool:
        """Delete a parcel, unless it was used lately."""
        gone = path.with_name(f"{path.name}.gone")  # no half of it is ever used
        with self._marking:
            if now_wall_s - self._used_s(path) < KEPT_S:
                return False
            self._disk.replace(path, gone)
            self._disk.unlink(self._used(path))
        self._disk.remove_tree(gone)
        return True

    def _used_s(self, path: Path) -> float:
        try:
            return self._disk.modified_s(self._used(path))
        except FileNotFoundError:  # it was unpacked a moment ago
            return self._disk.modified_s(path)

    def _used(self, path: Path) -> Path:
        return path.with_name(f"{path.name}.used")

    def _path(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise BadStream(f"{digest[:80]!r} is no sha256")
        return self._root / digest
