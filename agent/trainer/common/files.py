"""Files that are whole or not there."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import time
from pathlib import Path
from typing import Final

from agent.trainer.common.errors import BadInputError

_WAITS_S: Final = (0.01, 0.03, 0.1, 0.3, 0.9) if os.name == "nt" else ()
# The disk may have room, or work, another time.
_MAY_PASS: Final = frozenset({errno.EDQUOT, errno.EIO, errno.ENOSPC, errno.EMFILE, errno.ENFILE})


def write_atomically(path: Path, content: bytes) -> None:
    """Put `content` at `path`: a crash leaves the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    move(part, path)
    if os.name == "posix":  # Windows cannot open a folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def move(part: Path, path: Path) -> None:
    """Put a file at `path`, over what is there.

    In Windows a virus scanner, or whoever copies it, may have either open for a moment.
    """
    for wait_s in _WAITS_S:
        with contextlib.suppress(PermissionError):
            part.replace(path)
            return
        time.sleep(wait_s)
    part.replace(path)


def check_folders(*folders: Path | None) -> None:
    """Make the folders for the results and try to write there. Raises BadInputError."""
    for folder in filter(None, folders):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            if error.errno in _MAY_PASS:
                raise
            problem = error.strerror or "cannot be written to"
            raise BadInputError.at(folder, "folder", problem, "choose another") from error
