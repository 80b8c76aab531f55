"""Unpacks a bundle that came from somewhere else, trusting nothing in it.

Only regular files are taken that whoever bundles would have taken
(`broker.system.bundle_contents`). The archive is read as a stream; how many entries and how many
bytes it may hold is bounded, so that neither a tar bomb nor a zstandard bomb can fill a disk.
Either everything is unpacked, or nothing is left behind.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import zstandard

from broker.errors import BadStream
from broker.system.bundle_contents import LIMITS, Contents, Limits, StoredNames, System

_BLOCK_BYTES: Final = 1024 * 1024
_MAX_WINDOW_BYTES: Final = 128 * 1024 * 1024


class _Bounded:
    """A stream that refuses to give more than it may."""

    def __init__(self, stream: IO[bytes], limit_bytes: int) -> None:
        self._stream = stream
        self._left_bytes = limit_bytes

    def read(self, size_bytes: int = -1) -> bytes:
        size_bytes = _BLOCK_BYTES if size_bytes < 0 else min(size_bytes, _BLOCK_BYTES)
        data = self._stream.read(size_bytes)
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            raise BadStream("the bundle unpacks to more than is allowed")
        return data


def unpack(
    bundle: Path, into: Path, limits: Limits = LIMITS, system: System | None = None
) -> list[Path]:
    """Unpack `bundle` as the new folder `into`, all or nothing; return the files in order.

    `system` is what the folder cannot store; without it that is tried. Raises `BadStream` for a
    bundle that is damaged or not allowed, and OSError.
    """
    if into.exists():
        raise FileExistsError(f"{into} exists already; remove it, or choose another folder")
    into.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=f".{into.name}.", dir=into.parent))
    try:
        names = _unpack_into(bundle, making, limits, system or _probed(making))
        making.chmod(0o755)
        making.rename(into)
    except (tarfile.TarError, zstandard.ZstdError, EOFError) as error:
        shutil.rmtree(making, ignore_errors=True)
        raise BadStream(f"{bundle.name}: not a whole bundle: {error}") from None
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return [into / name for name in names]


def _probed(folder: Path) -> System:
    """Return what an empty folder cannot store: the disk decides, and not only the system."""
    windows = os.name == "nt" or not _stores(folder, "a:b?", "a:b?")
    return System(
        windows=windows,
        folds=_stores(folder, "case", "CASE") or _stores(folder, "\u00e9", "e\u0301"),
    )


def _stores(folder: Path, name: str, asked: str) -> bool:
    """Whether a file that is written as `name` is found as `asked`."""
    path = folder / name
    try:
        path.touch(exist_ok=False)
        found = (folder / asked).exists()
        path.unlink()
    except OSError:
        return False
    return found


def _unpack_into(bundle: Path, folder: Path, limits: Limits, system: System) -> list[str]:
    names: list[str] = []
    contents, stored = Contents(limits), StoredNames(system)
    with bundle.open("rb") as file:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
        stream = decompressor.stream_reader(file, read_across_frames=False)
        bounded = _Bounded(stream, limits.total_bytes + 1024 * limits.entries + _BLOCK_BYTES)
        # Not by `tarfile.open`: it takes a header of any size into memory, and stumbles over some.
        while any(header := b"".join(_pieces(bounded, tarfile.BLOCKSIZE))):
            entry = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
            _check(entry, contents)
            name = stored.of(entry.name)
            _write(bounded, entry.size, folder / name)
            names.append(name)
        while bounded.read(_BLOCK_BYTES):
            pass  # to its end, so that its checksum is verified
    return names


def _check(entry: tarfile.TarInfo, contents: Contents) -> None:
    # A sparse file is a regular one to tarfile; what it leaves out comes from nowhere, unbounded.
    if entry.type not in {tarfile.REGTYPE, tarfile.AREGTYPE} or entry.size < 0:
        raise BadStream(f"{entry.name[:80]!r} in the bundle is no regular file")
    if objection := contents.objection(entry.name, entry.size):
        raise BadStream(objection)


def _write(stream: _Bounded, size_bytes: int, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        for data in _pieces(stream, size_bytes):
            file.write(data)
    for _ in _pieces(stream, -size_bytes % tarfile.BLOCKSIZE):
        pass


def _pieces(stream: _Bounded, size_bytes: int) -> Iterator[bytes]:
    """Yield the next bytes, so many in all. Raises EOFError when there are fewer."""
    while size_bytes:
        data = stream.read(size_bytes)
        if not data:
            raise EOFError("it ends too early")
        size_bytes -= len(data)
        yield data
