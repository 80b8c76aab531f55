"""What a bundle may hold, and how one that came from elsewhere is unpacked.

Only regular files with plain relative names are taken. The archive is read as a stream, and the
number of its entries and bytes is bounded, so that neither a tar bomb nor a zstandard bomb can fill
a disk. Either everything is unpacked, or nothing is left behind.

A name that the folder cannot store is escaped: a byte of UTF-8 as `%` and two hex digits, which
`urllib.parse.unquote` decodes.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import zstandard

from broker.errors import BadStream
from broker.file_names import is_device
from broker.system.files import RealDisk

MAX_DEPTH: Final = 16
MAX_FILE_BYTES: Final = 8 * 1024**3 - 1  # the most that a header of ustar has digits for
_NAME_BYTES: Final = 100  # what it has for a name, and for the folders above it
_FOLDERS_BYTES: Final = 155
_BLOCK_BYTES: Final = 1024 * 1024
_MAX_WINDOW_BYTES: Final = 128 * 1024 * 1024
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NOT_ON_WINDOWS: Final = re.compile(r"%(?=[0-9A-Fa-f]{2})|[<>:\"|?*\\]|[. ]\Z")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a bundle may hold."""

    entries: int = 10_000
    total_bytes: int = 64 * 1024**3


LIMITS: Final = Limits()


class Contents:
    """Judges the files of one bundle, one after the other."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self._limits = limits
        self._files: set[str] = set()
        self._folders: set[str] = set()
        self._total_bytes = 0

    def objection(self, name: str, size_bytes: int) -> str:
        """Add a file by its name with `/`; return why it is not allowed, or an empty string."""
        parts, limits = name.split("/"), self._limits
        above = {name[:at] for at, one in enumerate(name) if one == "/"}
        self._total_bytes += size_bytes
        rules = (
            (not {"", ".", ".."}.isdisjoint(parts) or _UNSAFE.search(name) is not None,
             "is no plain relative name of text"),
            (len(parts) > MAX_DEPTH,
             f"is {len(parts)} levels deep; a bundle holds at most {MAX_DEPTH}"),
            (not _fits_header(name.encode("utf-8", "surrogatepass")),
             f"is too long; at most {_NAME_BYTES} bytes, and {_FOLDERS_BYTES} for its folders"),
            (name in self._files, "is in the bundle twice"),
            (name in self._folders or not above.isdisjoint(self._files),
             "is in the bundle as a file and as a folder"),
            (len(self._files) >= limits.entries,
             f"is one too many; a bundle holds at most {limits.entries:,} files"),
            (size_bytes > MAX_FILE_BYTES,
             f"has {size_bytes:,} bytes; a file in a bundle has at most {MAX_FILE_BYTES:,}"),
            (self._total_bytes > limits.total_bytes,
             f"is too much; a bundle has at most {limits.total_bytes // 1024**2:,} MiB"),
        )  # fmt: skip
        self._files.add(name)
        self._folders |= above
        return next((f"{name[:80]!r} {why}" for is_wrong, why in rules if is_wrong), "")


def _fits_header(name: bytes) -> bool:
    """Tell whether a header of ustar has room for a name, which it splits at one `/`."""
    return len(name) <= _NAME_BYTES or any(
        byte == ord("/") and at <= _FOLDERS_BYTES and len(name) - at - 1 <= _NAME_BYTES
        for at, byte in enumerate(name)
    )


def unpack(
    bundle: Path,
    into: Path,
    limits: Limits = LIMITS,
    *,
    durable: bool = False,
    windows: bool = os.name == "nt",
) -> list[Path]:
    """Unpack `bundle` as the new folder `into`, all or nothing; return the files in order.

    With `durable` that holds after a power cut, too.
    Raises `BadStream` for a bundle that is damaged or holds what is not allowed, and OSError.
    """
    if into.exists():
        raise FileExistsError(f"{into} exists already; remove it, or choose another folder")
    into.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=f".{into.name}.", dir=into.parent))
    try:
        names = _unpack_into(bundle, making, limits, windows=windows)
        making.chmod(0o755)
        if durable:
            _sync(making, names)
        RealDisk().replace(making, into)
    except (tarfile.TarError, zstandard.ZstdError, EOFError) as error:
        shutil.rmtree(making, ignore_errors=True)
        raise BadStream(f"{bundle.name}: not a whole bundle: {error}") from None
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return [into / name for name in names]


def _sync(folder: Path, names: Sequence[Path]) -> None:
    """Wait until files in a folder, and the names of all of them, are on the disk."""
    folders = {folder / one for name in names for one in name.parents} | {folder}
    RealDisk().sync_all([*(folder / name for name in names), *folders])


class _Bounded:
    """A stream that refuses to give more than it may."""

    def __init__(self, stream: IO[bytes], limit_bytes: int) -> None:
        self._stream = stream
        self._left_bytes = limit_bytes

    def read(self, size_bytes: int) -> bytes:
        data = self._stream.read(min(size_bytes, _BLOCK_BYTES))
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            raise BadStream("the bundle unpacks to more than is allowed")
        return data

    def pieces(self, size_bytes: int) -> Iterator[bytes]:
        """Yield the next `size_bytes` in pieces. Raises EOFError when there are fewer."""
        while size_bytes:
            data = self.read(size_bytes)
            if not data:
                raise EOFError("it ends too early")
            size_bytes -= len(data)
            yield data


def _unpack_into(bundle: Path, folder: Path, limits: Limits, *, windows: bool) -> list[Path]:
    stored: list[Path] = []
    contents = Contents(limits)
    with bundle.open("rb") as file:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
        stream = decompressor.stream_reader(file, read_across_frames=False)
        bounded = _Bounded(stream, limits.total_bytes + 1024 * limits.entries + _BLOCK_BYTES)
        # Not by `tarfile.open`: it takes a header of any size into memory, and stumbles over some.
        while any(header := b"".join(bounded.pieces(tarfile.BLOCKSIZE))):
            entry = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
            _check(entry, contents)
            path, target = _create(folder, entry.name, windows=windows)
            with target:
                for data in bounded.pieces(entry.size):
                    target.write(data)
            for _ in bounded.pieces(-entry.size % tarfile.BLOCKSIZE):
                pass
            stored.append(path)
        while bounded.read(_BLOCK_BYTES):
            pass  # to its end, so that its checksum is verified
    return stored


def _check(entry: tarfile.TarInfo, contents: Contents) -> None:
    # tarfile calls a sparse file regular; its holes would be unbounded.
    if entry.type not in {tarfile.REGTYPE, tarfile.AREGTYPE} or entry.size < 0:
        raise BadStream(f"{entry.name[:80]!r} in the bundle is no regular file")
    if objection := contents.objection(entry.name, entry.size):
        raise BadStream(objection)


def _create(folder: Path, name: str, *, windows: bool) -> tuple[Path, IO[bytes]]:
    """Create a new file; return its path within `folder`, and the file.

    The disk decides what it cannot store: names that differ only in case, or characters.
    """
    refused: OSError | None = None
    for stored in _ways_to_store(name, windows=windows):
        path = folder / stored
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return Path(stored), path.open("xb")
        except OSError as error:
            if error.errno not in {errno.EEXIST, errno.EINVAL, errno.ENOTDIR}:
                raise
            refused = error
    raise BadStream(f"{name[:80]!r} in the bundle cannot be stored: {refused}")


def _ways_to_store(name: str, *, windows: bool) -> Iterator[str]:
    """Yield `name` with ever more of it escaped."""
    if not windows:  # where `a:b` would be a stream of the file `a`
        yield name
    yield "/".join(
        _escaped(part) if windows and is_device(part) else _NOT_ON_WINDOWS.sub(_percent, part)
        for part in name.split("/")
    )
    yield "/".join(_escaped(part) for part in name.split("/"))


def _percent(found: re.Match[str]) -> str:
    return _escaped(found[0])


def _escaped(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())
