"""One process a state folder: a lock that the system lets go when its holder ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO

from broker.disk import make_wanted, naming
from broker.errors import ConfigError


class FolderLock:
    """Holds `<folder>/lock` until it is released or the process ends.

    Raises `ConfigError` when another process holds it: two agents on one folder would end each
    other's trainers. Likewise when `folder` is a file.
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
            self._file.seek(0)
            holder = self._file.read(20).decode("ascii", "replace").strip() or "?"
            self._file.close()
            raise ConfigError(
                f"{folder}: another {who} (process {holder}) is using it; stop that one, or "
                "choose another --state"
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
    """Return the process that holds the lock of a folder, or none; changes nothing.

    Raises OSError when the lock cannot be looked at.
    """
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
