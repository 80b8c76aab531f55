"""Deterministic bundles: the same files give the same bytes, and so the same artifact id.

A tar (ustar) with entries in order of their names, fixed owner, mode and times, compressed by
zstandard at a fixed level on one thread. The bytes also depend on the version of zstandard. Both
are loaded with the first bundle: an agent that has nothing to do is to be small.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

from broker.errors import StorageError

LEVEL: Final = 6
_MODE: Final = 0o644


@dataclass(frozen=True, slots=True)
class BundleInfo:
    """A bundle: the sha256 of its bytes in hex, and their number."""

    artifact_id: str
    size_bytes: int


class _Hashing:
    """A file that hashes and counts what is written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._size_bytes = 0

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        self._size_bytes += len(data)
        return self._file.write(data)

    def info(self) -> BundleInfo:
        return BundleInfo(self._digest.hexdigest(), self._size_bytes)


def make_bundle(folder: Path, out: Path) -> BundleInfo:
    """Bundle the regular files under `folder` into the file `out`, durably and atomically.

    Raises `StorageError` when there is nothing to bundle, or something that is no regular file.
    Memory is bounded, whatever the files' sizes.
    """
    import zstandard

    names = sorted(_names(folder))
    if not names:
        raise StorageError(f"{folder}: the trainer wrote nothing")
    making = out.with_name(out.name + ".part")
    with making.open("wb") as file:
        hashing = _Hashing(file)
        compressor = zstandard.ZstdCompressor(
            level=LEVEL, write_checksum=True, write_content_size=False
        )
        with compressor.stream_writer(cast("Any", hashing), closefd=False) as stream:
            _write_tar(folder, names, stream)
        file.flush()
        os.fsync(file.fileno())
    making.replace(out)
    return hashing.info()


def _names(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise StorageError(f"{path}: is no regular file; trainers may write nothing else")
        if path.is_file():
            yield path.relative_to(folder).as_posix()


def _write_tar(folder: Path, names: list[str], stream: Any) -> None:
    import tarfile

    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.USTAR_FORMAT) as tar:
        for name in names:
            entry = tarfile.TarInfo(name)
            path = folder / name
            entry.size = path.stat().st_size
            entry.mode = _MODE
            with path.open("rb") as source:
                tar.addfile(entry, source)
