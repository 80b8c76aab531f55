"""Puts rendered files into a folder, and never over a file that somebody else made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from broker.deploy.site import MADE_BY
from broker.errors import ConfigError
from broker.system.files import RealDisk, write_atomically


def write(folder: Path, files: Mapping[str, str], *, force: bool = False) -> list[Path]:
    """Write the files, all or none, and return the paths of those that changed.

    Raises `ConfigError` for a file that somebody else made, unless `force`.
    """
    changed = {folder / name: text for name, text in files.items() if _old(folder / name) != text}
    for path in changed:
        old = _old(path)
        if old is not None and MADE_BY not in old and not force:
            raise ConfigError(
                f"{path}: is there already and was not made by this command; "
                "write elsewhere with -o, or overwrite it with --force"
            )
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in changed.items():
        write_atomically(RealDisk(), path.resolve(), text.encode())
    return list(changed)


def _old(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return None
