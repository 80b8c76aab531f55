"""Deterministic bundles: the same files give the same bytes, and so the same artifact id.

A tar (ustar) with entries in order of their names, fixed owner, mode and times, compressed by
zstandard at a fixed level on one thread. The bytes also depend on the version of zstandard. Both
are loaded with the first bundle: an agent that has nothing to do is to be small.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

from broker.errors import StorageError

LEVEL: Final = 6
_MODE: Final = 0o644
_BLOCK_BYTES: Final = 512  # of a tar
_RECORD_BYTES: Final = 20 * _BLOCK_BYTES
_COPIED_BYTES: Final = 256 * 1024  # at a time


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
        left = memoryview(data)
        while left:  # a file without a buffer takes what there is room for, and says how much
            left = left[self._file.write(left) :]
        return len(data)

    def info(self) -> BundleInfo:
        return BundleInfo(self._digest.hexdigest(), self._size_bytes)


def make_bundle(folder: Path, out: Path, unsynced_bytes: int = 0) -> BundleInfo:
    """Bundle the regular files under `folder` into the file `out`, atomically.

    It is durable, unless it has no more than `unsynced_bytes`: then that is the caller's to see to.
    Raises `StorageError` when there is nothing to bundle, or something that no bundle may hold
    (`broker.system.archive`); OSError when the disk refuses. Nothing is left of it then.
    Memory is bounded, whatever the files' sizes.
    """
    sizes_bytes = dict(sorted(_checked(folder)))
    if not sizes_bytes:
        raise StorageError(f"{folder}: the trainer wrote nothing")
    making = out.with_name(out.name + ".part")
    try:
        with making.open("wb", buffering=0) as file:
            info = _write(folder, sizes_bytes, file)
            if info.size_bytes > unsynced_bytes:
                os.fsync(file.fileno())
        making.replace(out)
    except BaseException:
        with contextlib.suppress(OSError):  # the fault itself is to be told
            making.unlink()  # a full disk may be full of it
        raise
    return info


def _write(folder: Path, sizes_bytes: Mapping[str, int], file: IO[bytes]) -> BundleInfo:
    import zstandard

    hashing = _Hashing(file)
    compressor = zstandard.ZstdCompressor(
        level=LEVEL, write_checksum=True, write_content_size=False
    )
    # Told the size, zstd takes 200 KiB for a small bundle instead of 3 MiB.
    size_bytes = _tar_bytes(sizes_bytes.values())
    writer = compressor.stream_writer(cast("Any", hashing), size=size_bytes, closefd=False)
    stream = cast("IO[bytes]", writer)
    _write_tar(folder, sizes_bytes, stream)
    # Never after a fault, as by `with`: told the size, it would hide that by one of its own.
    stream.close()
    return hashing.info()


def _checked(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield what `_sizes` does, as long as all of it may be in a bundle."""
    from broker.system.archive import Contents

    contents = Contents()
    for name, size_bytes in _sizes(folder):
        if objection := contents.objection(name, size_bytes):
            raise StorageError(objection)
        yield name, size_bytes


def _sizes(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the name of each file under `folder`, with `/` between its parts, and its size."""
    inner = [(str(folder), "")] if folder.is_dir() else []
    while inner:
        path, prefix = inner.pop()
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    inner.append((entry.path, f"{prefix}{entry.name}/"))
                elif entry.is_file(follow_symlinks=False):
                    yield prefix + entry.name, entry.stat(follow_symlinks=False).st_size
                else:
                    raise StorageError(
                        f"{entry.path}: is no regular file; trainers may write nothing else"
                    )


def _tar_bytes(sizes_bytes: Iterable[int]) -> int:
    """Return how long the tar of files of these sizes is."""
    used = sum(_BLOCK_BYTES + size + -size % _BLOCK_BYTES for size in sizes_bytes)
    used += 2 * _BLOCK_BYTES  # they are the end
    return used + -used % _RECORD_BYTES


def _write_tar(folder: Path, sizes_bytes: Mapping[str, int], stream: IO[bytes]) -> None:
    written = 0
    for name, size_bytes in sizes_bytes.items():
        stream.write(_header(name, size_bytes))
        with open(f"{folder}/{name}", "rb", buffering=0) as source:  # noqa: PTH123 - it is quicker
            _copy(source, size_bytes, stream)
        padding = bytes(-size_bytes % _BLOCK_BYTES)
        stream.write(padding)
        written += _BLOCK_BYTES + size_bytes + len(padding)
    stream.write(bytes(_tar_bytes(sizes_bytes.values()) - written))


def _header(name: str, size_bytes: int) -> bytes:
    import tarfile

    entry = tarfile.TarInfo(name)
    entry.size = size_bytes
    entry.mode = _MODE
    return entry.tobuf(tarfile.USTAR_FORMAT)


def _copy(source: IO[bytes], size_bytes: int, stream: IO[bytes]) -> None:
    while size_bytes:
        data = source.read(min(size_bytes, _COPIED_BYTES))
        if not data:
            raise StorageError(f"{source.name}: has become shorter; something still writes it")
        stream.write(data)
        size_bytes -= len(data)
