"""Files, as the store and the spool use them.

Nothing that is written is on the disk before `sync`, and no name before `sync_folder`: a power cut
may undo either.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final

from broker.errors import ConfigError

# In Windows a virus scanner or an indexer may have a file open for a moment, which then can be
# neither renamed nor replaced nor deleted. 1.3 s in all: it is a fault that is told, after that.
_WAITS_S: Final = (0.01, 0.03, 0.1, 0.3, 0.9) if os.name == "nt" else ()
MANY: Final = 50  # for fewer, all that others have written may take longer
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
# Not so on Windows, where it could not be deleted any more.
_READ_ONLY: Final = 0o444 if os.name == "posix" else 0o666


class RealDisk:
    """The file system of this machine. All methods raise OSError when it refuses."""

    def open(self, path: Path, mode: str) -> Any:
        """Open a file in a binary mode."""
        return path.open(mode)

    def sync(self, file: Any) -> None:
        """Flush an open file and wait until its bytes are on the disk."""
        file.flush()
        os.fsync(file.fileno())

    def write_new(self, path: str, blocks: Iterable[bytes]) -> None:
        """Write a new file, which nobody may write later. Raises `FileExistsError`."""
        # Not by `open`: that takes twice as many system calls, which is most of a small file.
        with _descriptor(path, _NEW, _READ_ONLY) as descriptor:
            for block in blocks:
                left = memoryview(block)
                while left:
                    left = left[os.write(descriptor, left) :]

    def sync_all(self, paths: Collection[Path | str]) -> None:
        """Wait until files that nobody has open, and the names in folders, are on one disk."""
        if len(paths) > MANY and sys.platform == "linux":
            import ctypes

            with _descriptor(next(iter(paths))) as descriptor:
                if not ctypes.CDLL(None).syncfs(descriptor):
                    return
        for path in map(Path, paths):
            if os.name == "posix" or path.is_dir():
                self.sync_folder(path)  # a file that nobody may write, too
            else:
                with self.open(path, "r+b") as file:
                    self.sync(file)

    def sync_folder(self, folder: Path) -> None:
        """Wait until the names in a folder are on the disk."""
        if os.name == "posix":
            with _descriptor(folder) as descriptor:
                os.fsync(descriptor)

    def replace(self, old: Path, new: Path) -> None:
        """Rename a file, atomically, over whatever has the new name."""
        _patiently(lambda: old.replace(new))

    def unlink(self, path: Path) -> None:
        """Delete a file if it is there."""
        _patiently(lambda: path.unlink(missing_ok=True))

    def make_folder(self, folder: Path) -> None:
        """Make a folder and its parents, if they are missing."""
        folder.mkdir(parents=True, exist_ok=True)

    def remove_tree(self, folder: Path) -> None:
        """Delete a folder with all that is in it; what cannot be deleted stays."""
        try:
            with contextlib.suppress(OSError):
                _patiently(lambda: shutil.rmtree(folder))
            shutil.rmtree(folder, ignore_errors=True)
        except RecursionError:  # a program may make folders in folders without end
            with contextlib.suppress(OSError):
                _flatten(folder)
            shutil.rmtree(folder, ignore_errors=True)

    def link(self, file: Path, new: Path) -> None:
        """Give a file one more name."""
        os.link(file, new)

    def protect(self, path: Path) -> None:
        """Let nobody write a file. Not on Windows, where it could not be deleted any more."""
        if os.name == "posix":
            path.chmod(0o444)

    def glob(self, folder: Path, pattern: str) -> list[Path]:
        """Return what matches in a folder, in order."""
        return sorted(folder.glob(pattern))

    def size_bytes(self, path: Path) -> int | None:
        """Return the size of a file, or none when there is none."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return path.stat().st_size
        return None

    def tree_bytes(self, folder: Path) -> int:
        """Return the size of all files in a folder; one with several names counts once."""
        sizes = {}
        for root, _, names in os.walk(folder):
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # of another thread
                    status = os.lstat(f"{root}/{name}")
                    sizes[status.st_ino] = status.st_size
        return sum(sizes.values())

    def modified_s(self, path: Path) -> float:
        """Return when a file was last written, in seconds since the epoch."""
        return path.stat().st_mtime

    def free_bytes(self, folder: Path) -> int:
        """Return how much room there is."""
        return shutil.disk_usage(folder).free


def _patiently(act: Callable[[], object]) -> None:
    """Do what another program may hinder for a moment, see `_WAITS_S`."""
    for wait_s in _WAITS_S:
        with contextlib.suppress(PermissionError):
            act()
            return
        time.sleep(wait_s)
    act()


@contextlib.contextmanager
def _descriptor(path: Path | str, flags: int = os.O_RDONLY, mode: int = 0) -> Iterator[int]:
    descriptor = os.open(path, flags, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _flatten(folder: Path) -> None:
    """Empty each folder in another one: what folders it has are moved into `folder` first."""
    import tempfile

    while inner := [*_folders_in(folder)]:
        for one in inner:
            for deeper in _folders_in(one):
                deeper.replace(tempfile.mkdtemp(dir=folder))
            shutil.rmtree(one)


def _folders_in(folder: Path) -> Iterator[Path]:
    return (one for one in folder.iterdir() if one.is_dir() and not one.is_symlink())


Disk = RealDisk
"""The simulation passes a disk of its own, which loses what was not synced."""


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name `path` in an OSError that names no file, as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def make_wanted(folder: Path) -> None:
    """Make a folder that somebody named, with its parents; `ConfigError` where a file is."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        at = next((one for one in (folder, *folder.parents) if one.is_file()), folder)
        raise ConfigError(f"{at}: is a file, and a folder is wanted; name another") from None


def read(disk: Disk, path: Path) -> bytes:
    """Return a whole file."""
    with disk.open(path, "rb") as file:
        data: bytes = file.read()
    return data


def write_atomically(disk: Disk, path: Path, data: bytes, *, durable: bool = True) -> None:
    """Put `data` at `path`, whole or not at all; its name is durable after `sync_folder`."""
    making = path.with_name(path.name + ".making")
    try:
        with naming(making), disk.open(making, "wb") as file:
            file.write(data)
            if durable:
                disk.sync(file)
        disk.replace(making, path)
    except OSError:  # a full disk: the half of it would take room that others need
        with contextlib.suppress(OSError):
            disk.unlink(making)
        raise


class FolderLock:
    """Holds `<folder>/lock` until it is released or the process ends.

    Raises `ConfigError` when another process holds it: two agents would end each other's trainers.
    """

    def __init__(self, folder: Path, who: str) -> None:
        """Take the lock; `who` is what the other one is called in the error."""
        make_wanted(folder)
        path = folder / "lock"
        # Unbuffered: what a full disk has refused is not tried again when the file is closed.
        self._file: IO[bytes] = path.open("a+b", buffering=0)
        try:
            _take(self._file)
        except OSError:
            self._file.close()
            raise ConfigError(
                f"{folder}: another {who} (process {holder(folder) or '?'}) is using it; stop that "
                "one, or choose another --state"
            ) from None
        try:
            with naming(path):
                self._file.truncate(0)
                self._file.write(f"{os.getpid()}\n".encode())
        except OSError:
            self._file.close()
            raise

    def release(self) -> None:
        """Let it go."""
        self._file.close()


def holder(folder: Path) -> str | None:
    """Return the process that holds the lock of a folder, or none; changes nothing."""
    try:
        file = (folder / "lock").open("r+b")
    except FileNotFoundError:
        return None
    with file:
        try:
            _take(file)
        except OSError:
            file.seek(0)
            return file.read(20).decode("ascii", "replace").strip() or "?"
    return None


if sys.platform == "win32":
    import msvcrt

    def _take(file: IO[bytes]) -> None:
        # A byte far beyond the process id, which others may read.
        file.seek(4096)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _take(file: IO[bytes]) -> None:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
