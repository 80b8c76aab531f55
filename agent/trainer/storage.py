"""Files that are whole or not there."""

from __future__ import annotations

import os
from pathlib import Path

from agent.trainer.errors import BadInputError


def write_atomically(path: Path, content: bytes) -> None:
    """Put `content` at `path`: a crash leaves the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    if os.name == "posix":  # elsewhere a folder cannot be opened
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def check_folders(*folders: Path | None) -> None:
    """Make the folders for the results, before hours are spent on them. Raises BadInputError."""
    for folder in filter(None, folders):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError, PermissionError) as error:
            problem = error.strerror or "cannot be made"
            raise BadInputError.at(folder, "folder", problem, "choose another") from error
