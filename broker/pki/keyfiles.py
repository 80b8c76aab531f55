"""Files that nobody else may read, from the moment they exist."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from functools import partial
from pathlib import Path
from typing import Any, Final

from broker.errors import ConfigError, why
from broker.system.files import RealDisk, write_atomically

SECRET: Final = 0o600
PUBLIC: Final = 0o644


def private_folder(folder: Path) -> None:
    """Make a folder that only its owner may enter, if it is missing. Raises OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


class _PrivateDisk(RealDisk):
    """Creates each file with its mode: a `chmod` afterwards would come too late."""

    def __init__(self, mode: int) -> None:
        self._mode = mode

    def open(self, path: Path, mode: str) -> Any:  # noqa: ARG002 - it only creates files
        """Create a file; what is left of an earlier attempt is deleted."""
        path.unlink(missing_ok=True)
        return open(path, "xb", opener=partial(os.open, mode=self._mode))


def write(path: Path, data: bytes, mode: int = SECRET) -> None:
    """Put `data` at `path`, durably, whole or not at all, with `mode` from the first moment."""
    disk = _PrivateDisk(mode)
    write_atomically(disk, path, data)
    disk.sync_folder(path.parent)


def read(path: Path, limit_bytes: int, remedy: str = "") -> bytes:
    """Return a small file; raises `ConfigError`, with `remedy` where it is missing."""
    try:
        with path.open("rb") as file:
            data = file.read(limit_bytes + 1)
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        wrong = f"{path}: cannot be read: {why(error)}"
        raise ConfigError(wrong, remedy if is_missing else "") from None
    if len(data) > limit_bytes:
        raise ConfigError(
            f"{path}: is larger than {limit_bytes} bytes; it is not what it should be"
        )
    return data


def check_secret(path: Path) -> None:
    """Raise `ConfigError` with the remedy when others may read a secret file."""
    if os.name != "posix":
        return  # who may read a file is no matter of modes there
    with contextlib.suppress(OSError):
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            remedy = f"run `chmod 600 {shlex.quote(str(path))}`"
            raise ConfigError(f"{path}: others may read this key; {remedy}")
