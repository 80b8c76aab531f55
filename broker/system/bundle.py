"""Deterministic bundles: the same files give the same bytes, and so the same artifact id.

A tar (ustar) with entries in order of their names, fixed owner, mode and times, compressed by
zstandard at a fixed level on one thread. The bytes also depend on the version of zstandard. Both
are loaded with the first bundle: an agent that has nothing to do is to be small.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

from broker.errors import StorageError, bounded

LEVEL: Final = 6
_WRITTEN_BYTES: Final = 256 * 1024  # at a time
_WHOLE_BYTES: Final = 256 * 1024  # that are compressed at once


class NothingWrittenError(StorageError):
    """There is no file to bundle."""


@dataclass(frozen=True, slots=True)
class BundleInfo:
    """A bundle: the sha256 of its bytes in hex, and their number."""

    artifact_id: str
    size_bytes: int


def make_bundle(folder: Path, out: Path, unsynced_bytes: int = 0) -> BundleInfo:
    """Bundle the regular files under `folder`, which a trainer wrote, into the file `out`.

    See `bundle_files`. Raises `StorageError`, too, when `folder` holds something else, and
    `NothingWrittenError` when it holds nothing.
    """
    files = {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if not stat.S_ISDIR(path.lstat().st_mode)
    }
    if not files:
        raise NothingWrittenError(f"{folder}: holds no file")
    return bundle_files(files, out, unsynced_bytes)


def bundle_files(files: Mapping[str, Path], out: Path, unsynced_bytes: int = 0) -> BundleInfo:
    """Bundle files, by their names with `/`, into the file `out`.

    It is durable, unless it has no more than `unsynced_bytes`: then that is the caller's to see to.
    Raises `StorageError` when one is no regular file, or is nothing that a bundle may hold
    (`broker.system.archive`); OSError when the disk refuses. Nothing is left of it then.
    Memory is bounded, whatever the files' sizes.
    """
    _check(files)
    try:
        with out.open("wb") as file:
            hashed = _Hashed(file)
            _write(dict(sorted(files.items())), hashed)
            file.flush()
            size_bytes = file.tell()
            if size_bytes > unsynced_bytes:
                os.fsync(file.fileno())
    except BaseException:
        with contextlib.suppress(OSError):  # the fault itself is to be told
            out.unlink()  # a full disk may be full of it
        raise
    return BundleInfo(hashed.sha256.hexdigest(), size_bytes)


class _Hashed:
    """A file whose content is hashed as it is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self.sha256 = hashlib.sha256()
        self._file = file

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return self._file.write(data)


def _check(files: Mapping[str, Path]) -> None:
    """Raise `StorageError` for the files that no bundle may hold."""
    from broker.system.archive import Contents

    contents, told = Contents(), list[str]()
    for name, path in files.items():
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise StorageError(f"{path}: is no regular file; a bundle holds nothing else")
        told += filter(None, [contents.objection(name, status.st_size)])
    if told:
        raise StorageError("\n".join(bounded(told)))


def _write(files: Mapping[str, Path], file: _Hashed) -> None:
    import zstandard

    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
    if sum(path.stat().st_size for path in files.values()) <= _WHOLE_BYTES:
        # For a stream of unknown length zstandard takes 5 MiB of memory, and 2 ms to clear them.
        whole = io.BytesIO()
        _write_tar(files, whole)
        file.write(compressor.compress(whole.getbuffer()))
        return
    with compressor.stream_writer(cast("IO[bytes]", file), closefd=False) as stream:
        _write_tar(files, cast("IO[bytes]", stream))


def _write_tar(files: Mapping[str, Path], out: IO[bytes]) -> None:
    import tarfile

    tar = tarfile.open(  # noqa: SIM115 - its end is for a whole bundle alone
        fileobj=out, mode="w|", format=tarfile.USTAR_FORMAT, bufsize=_WRITTEN_BYTES
    )
    for name, path in files.items():
        with path.open("rb") as source:
            entry = tarfile.TarInfo(name)
            entry.size = os.fstat(source.fileno()).st_size
            tar.addfile(entry, source)
    tar.close()
