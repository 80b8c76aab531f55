"""Files, as the store and the spool use them: few operations, each with its durability told.

Nothing that is written is on the disk before `sync`, and no name before `sync_folder`: a power cut
may undo either. The simulation's disk does undo them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any, Protocol


class Disk(Protocol):
    """A file system. All methods raise OSError when it refuses."""

    def open(self, path: Path, mode: str) -> Any:
        """Open a file in a binary mode of `open`; return a file object."""
        ...

    def sync(self, file: Any) -> None:
        """Flush an open file and wait until its bytes are on the disk."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Wait until the names in a folder are on the disk."""
        ...

    def replace(self, old: Path, new: Path) -> None:
        """Rename a file, atomically, over whatever bears the new name."""
        ...

    def unlink(self, path: Path) -> None:
        """Delete a file if it is there."""
        ...

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it, if they are missing."""
        ...

    def remove_tree(self, folder: Path) -> None:
        """Delete a folder with all that is in it; what cannot be deleted stays."""
        ...

    def glob(self, folder: Path, pattern: str) -> list[Path]:
        """Return what matches in a folder, in order."""
        ...

    def size_bytes(self, path: Path) -> int | None:
        """Return the size of a file, or none when there is none."""
        ...

    def modified_s(self, path: Path) -> float:
        """Return when a file was last written, in seconds since the epoch."""
        ...

    def free_bytes(self, folder: Path) -> int:
        """Return how much room there is."""
        ...


class RealDisk:
    """The file system of this machine."""

    def open(self, path: Path, mode: str) -> Any:
        """See `Disk`."""
        return path.open(mode)

    def sync(self, file: Any) -> None:
        """See `Disk`."""
        file.flush()
        os.fsync(file.fileno())

    def sync_folder(self, folder: Path) -> None:
        """See `Disk`."""
        if os.name == "posix":
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def replace(self, old: Path, new: Path) -> None:
        """See `Disk`."""
        old.replace(new)

    def unlink(self, path: Path) -> None:
        """See `Disk`."""
        path.unlink(missing_ok=True)

    def make_folder(self, folder: Path) -> None:
        """See `Disk`."""
        folder.mkdir(parents=True, exist_ok=True)

    def remove_tree(self, folder: Path) -> None:
        """See `Disk`."""
        shutil.rmtree(folder, ignore_errors=True)

    def glob(self, folder: Path, pattern: str) -> list[Path]:
        """See `Disk`."""
        return sorted(folder.glob(pattern))

    def size_bytes(self, path: Path) -> int | None:
        """See `Disk`."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return path.stat().st_size
        return None

    def modified_s(self, path: Path) -> float:
        """See `Disk`."""
        return path.stat().st_mtime

    def free_bytes(self, folder: Path) -> int:
        """See `Disk`."""
        return shutil.disk_usage(folder).free


def read(disk: Disk, path: Path) -> bytes:
    """Return a whole file."""
    with disk.open(path, "rb") as file:
        data: bytes = file.read()
    return data


def write_atomically(disk: Disk, path: Path, data: bytes) -> None:
    """Put `data` at `path`, whole or not at all; its name is durable after `sync_folder`."""
    making = path.with_name(path.name + ".making")
    with disk.open(making, "wb") as file:
        file.write(data)
        disk.sync(file)
    disk.replace(making, path)
