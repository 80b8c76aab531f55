"""Bundles on this host, unpacked, each in a folder by its sha256: parcels, and inputs of jobs.

    <root>/<digest>/                       its files, which nobody writes
    <root>/<job id>.<attempt>.fetching     one that is on its way here, see `Fetched`

A bundle is unpacked once its bytes hash to its name.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from agent.programs.cached_folders import CachedFolders
from agent.spool.fetched import Fetched
from broker.system.files import RealDisk

UNPACKED_BYTES: Final = 64 * 1024**2  # as `broker.programs.packing` packs at most
MAX_BYTES: Final = UNPACKED_BYTES + 16 * 1024**2  # of the bundle: what does not compress, and names
INPUT_BYTES: Final = 64 * 1024**3  # as any artifact unpacks to at most

Unpacker = Callable[[Path, Path], object]


def _unpack(part: Path, into: Path, limit_bytes: int = UNPACKED_BYTES) -> None:
    from broker.system.archive import Limits, unpack  # with the first one that comes

    for file in unpack(part, into, Limits(total_bytes=limit_bytes), durable=True):
        RealDisk().protect(file)


class Parcels(CachedFolders):
    """The folder of unpacked bundles. Its methods may be called on any thread.

    All raise OSError when the disk refuses.
    """

    def __init__(
        self,
        root: Path,
        limit_bytes: float,
        disk: RealDisk | None = None,
        unpacker: Unpacker = _unpack,
        max_bytes: float = MAX_BYTES,
    ) -> None:
        """Make the folder; drop what was half fetched or half unpacked.

        No bundle of more than `max_bytes` is taken.
        """
        super().__init__(root, limit_bytes, disk)
        self._unpacker = unpacker
        self._unpacking = threading.Lock()
        self.fetched = Fetched(root, self._disk, max_bytes)

    def install(self, job_id: str, attempt: int, digest: str) -> None:
        """Unpack what an attempt has fetched. Raises `BadStream` when it is not what was meant."""
        path = self.path(digest)
        with self.fetched.whole(job_id, attempt, digest) as part:
            with self._unpacking, contextlib.suppress(FileExistsError):  # another was quicker
                self._unpacker(part, path)
            self.folder(digest)


def open_inputs(root: Path, limit_bytes: float) -> Parcels:
    """Return the folder of artifacts of other jobs, which may be as large as artifacts are."""
    unpacker = partial(_unpack, limit_bytes=INPUT_BYTES)
    return Parcels(root, limit_bytes, unpacker=unpacker, max_bytes=math.inf)
