"""Files that are known to be whole: the next job does not hash again what stays as it was."""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from agent.trainer.data.schema import sha256_of

FOLDER: Final = "TRAINER_SEEN_FOLDER"  # the variable that names it, for several processes
_MOST: Final = 64  # notes in it
_SETTLED_S: Final = 2.0  # within it, a file may be written to twice at the same time

_seen: set[str] = set()


def is_whole(path: Path, sha256: str, settled_s: float = _SETTLED_S) -> bool:
    """Whether a file has this sha256. Raises OSError.

    It is read only if it has another size, time or inode than when it was found to be whole. What
    was written in the last `settled_s` is read by each process.
    """
    note, folder = _note(path, sha256), os.environ.get(FOLDER)
    if note in _seen or (folder and Path(folder, note).exists()):
        return True
    if sha256_of(path) != sha256:
        return False
    if note == _note(path, sha256):
        _seen.add(note)
        state = path.stat()
        if folder and time.time() - max(state.st_mtime, state.st_ctime) >= settled_s:
            with suppress(OSError):  # the next job reads the file again
                _remember(Path(folder), note)
    return True


def _note(path: Path, sha256: str) -> str:
    """Return the name of an empty file which says that this file as it is has this sha256."""
    state = path.stat()
    file = path.resolve(), state.st_dev, state.st_ino
    told = repr((sha256, *file, state.st_size, state.st_mtime_ns, state.st_ctime_ns))
    return hashlib.sha256(told.encode()).hexdigest()


def _remember(folder: Path, note: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / note).touch()
    for old in sorted(folder.iterdir(), key=os.path.getmtime)[:-_MOST]:
        old.unlink()
