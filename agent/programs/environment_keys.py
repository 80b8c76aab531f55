"""What an environment is built from, and its name: the sha256 of that."""

from __future__ import annotations

import hashlib
import re
import sys
import sysconfig
from pathlib import Path
from typing import Final

REQUIREMENTS: Final = "requirements.txt"
_LOCKED: Final = ("uv.lock", "pyproject.toml")
# A line that needs no other file of the parcel: a package by its name, its hash, an index, nothing.
_BY_NAME: Final = re.compile(
    r"\s*(#.*|[A-Za-z0-9][\w.\-\[\], ]*([=<>!~;#].*)?|--hash[= ]\S+|--(extra-)?index-url[= ]\S+)?"
    r"[\s\\]*"
)


def key_of(parcel: Path) -> str:
    """Return the key of a parcel's environment: 64 hex digits. Raises OSError.

    Parcels with the same packages share one, on the same interpreter and platform.
    """
    key = hashlib.sha256()
    here = (sys.version, sys.base_prefix, sysconfig.get_platform())
    for text in here:
        key.update(f"{len(text.encode())}\n{text}".encode())
    for path in _sources(parcel):
        name, data = path.relative_to(parcel).as_posix().encode(), path.read_bytes()
        key.update(b"%d\n%s%d\n%s" % (len(name), name, len(data), data))
    return key.hexdigest()


def is_locked(parcel: Path) -> bool:
    """Whether `uv.lock` tells the packages, and not `requirements.txt`."""
    return all((parcel / name).is_file() for name in _LOCKED)


def _sources(parcel: Path) -> list[Path]:
    """Return the files that tell which packages are installed, in order.

    `uv.lock` has the hash of each wheel. `requirements.txt` may name any file of the parcel.
    """
    if is_locked(parcel):
        return [parcel / name for name in _LOCKED]
    requirements = parcel / REQUIREMENTS
    text = requirements.read_text("utf-8", "replace")
    if ".whl" not in text and all(map(_BY_NAME.fullmatch, text.splitlines())):
        return [requirements]
    return sorted(path for path in parcel.rglob("*") if path.is_file())
