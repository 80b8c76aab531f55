"""A cache on disk: folders, each named by a sha256, that are whole and may be used again.

    <root>/<digest>/           what is used
    <root>/<digest>.used       written at each use

Whoever makes one makes it beside its place, and renames it: what is there is whole.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Container
from pathlib import Path
from typing import Final

from agent.spool.fetched import SUFFIX
from broker.errors import BadStream
from broker.protocol.messages import MAX_HOLDINGS
from broker.system.files import RealDisk, write_atomically

KEPT_S: Final = 3600.0  # since its last use; what was found a moment ago is about to be started
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class CachedFolders:
    """The folders. The methods may be called on any thread.

    All raise OSError when the disk refuses, and `BadStream` for a name that is no digest.
    """

    def __init__(
        self,
        root: Path,
        limit_bytes: float,
        disk: RealDisk | None = None,
    ) -> None:
        """Make the folder; drop what was half made."""
        self._root = root
        self._limit_bytes = limit_bytes
        self._disk = disk or RealDisk()
        self._marking = threading.Lock()  # of marks of use: what is marked is not deleted
        self._disk.make_folder(root)
        for path in self._disk.glob(root, "*"):
            if not _DIGEST.fullmatch(path.name.removesuffix(".used")) and path.suffix != SUFFIX:
                self._disk.remove_tree(path)
        self._by_use = {path.name: None for path in self.by_use()}  # as far as is known

    def held(self) -> tuple[str, ...]:
        """Return the digests of those that were used last, sorted."""
        with self._marking:
            return tuple(sorted([*self._by_use][-MAX_HOLDINGS:]))

    def folder(self, digest: str) -> Path | None:
        """Return the folder of that name, and note its use; none if it is not here."""
        path = self.path(digest)
        with self._marking:
            self._by_use.pop(digest, None)
            if not self._disk.glob(self._root, digest):
                return None
            self._by_use[digest] = None
            write_atomically(self._disk, mark_of(path), b"", durable=False)
        return path

    def path(self, digest: str) -> Path:
        """Return where the folder of that name is, or will be."""
        if not _DIGEST.fullmatch(digest):
            raise BadStream(f"{digest[:80]!r} is no sha256")
        return self._root / digest

    def by_use(self) -> list[Path]:
        """Return all that are here, that of the oldest use first."""
        found = [one for one in self._disk.glob(self._root, "*") if _DIGEST.fullmatch(one.name)]
        return sorted(found, key=self._used_s)

    def collect(self, in_use: Container[str], now_wall_s: float) -> None:
        """Delete what was used least lately until the rest fits; nothing in use or used lately."""
        total_bytes = self._disk.tree_bytes(self._root)
        for path in self.by_use():
            if total_bytes <= self._limit_bytes:
                return
            if self.is_removed(path, in_use, now_wall_s):
                total_bytes = self._disk.tree_bytes(self._root)

    def is_removed(self, path: Path, in_use: Container[str], now_wall_s: float) -> bool:
        """Delete a folder, unless it is in use or was used lately."""
        if path.name in in_use:
            return False
        gone = path.with_name(f"{path.name}.gone")  # no half of it is ever used
        with self._marking:
            if now_wall_s - self._used_s(path) < KEPT_S:
                return False
            self._by_use.pop(path.name, None)
            self._disk.replace(path, gone)
            self._disk.unlink(mark_of(path))
        self._disk.remove_tree(gone)
        return True

    def _used_s(self, path: Path) -> float:
        try:
            return self._disk.modified_s(mark_of(path))
        except FileNotFoundError:  # it was made a moment ago
            return self._disk.modified_s(path)


def mark_of(path: Path) -> Path:
    """Return the file whose time is that of a folder's last use."""
    return path.with_name(f"{path.name}.used")
