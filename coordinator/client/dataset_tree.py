"""A folder as a dataset: its files and their hashes, and the packs in which its bytes travel.

Each file is read once for the hashes, and once more when its pack is sent: no pack is in memory.
"""

from __future__ import annotations

import hashlib
import os
import stat
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import IO, Final, Self

from broker.errors import BadStream, ConfigError, bounded, why
from broker.programs.datasets import PACK_BYTES, File, Layout, Pack, Paths

READ_BYTES: Final = 1024 * 1024
SMALL_PACK_BYTES: Final = 64 * 1024**2  # a host unpacks one while the next one comes
MOST_NEW: Final = 1000  # packs, if they are not larger than `PACK_BYTES` then
_LEAVE_OUT: Final = "put a copy in its place, or leave it out"


@dataclass(frozen=True, slots=True)
class Found:
    """A file of the folder: its path in the dataset, where it is, its size in bytes."""

    path: str
    at: Path
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Planned:
    """The dataset that a folder is. `packs` are the new ones, each with its files in order."""

    layout: Layout
    packs: dict[str, tuple[Found, ...]]


def files_of(folder: Path) -> list[Found]:
    """Return the files of a folder, sorted by path.

    Raises `ConfigError` for what no dataset may hold: it names the file and the remedy.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder}: is no folder")
    found = sorted(_walk(folder), key=lambda one: one.path)
    paths = Paths()
    told = [f"{str(one.at)!r}: {wrong}" for one in found if (wrong := paths.objection(one.path))]
    if told:
        raise ConfigError(faults=bounded(told))
    return found


def _walk(folder: Path) -> Iterator[Found]:
    for root, folders, files in os.walk(folder, onerror=_unreadable):
        here = Path(root)
        if not folders and not files:
            raise ConfigError(f"{here}: is empty; put a file into it, or remove it")
        links = [name for name in folders if (here / name).is_symlink()]
        for name in (*files, *links):
            at = here / name
            status = at.lstat()
            if stat.S_ISLNK(status.st_mode):
                raise ConfigError(f"{at}: is a link; {_LEAVE_OUT}")
            if not stat.S_ISREG(status.st_mode):
                raise ConfigError(f"{at}: is no regular file; leave it out")
            yield Found(at.relative_to(folder).as_posix(), at, status.st_size)


def _unreadable(error: OSError) -> None:
    raise ConfigError(f"{error.filename}: cannot be read: {why(error)}; see its rights")


def plan(
    files: Sequence[Found], known: Layout | None, advance: Callable[[int], object]
) -> Planned:  # fmt: skip
    """Return the dataset that these files are, in new packs and those of a `known` one.

    `advance` is told how many more bytes have been hashed. Raises `ConfigError` for a file that
    cannot be read, or changes meanwhile.
    """
    planner = _Planner(known, sum(one.size_bytes for one in files) // MOST_NEW)
    for one in files:
        planner.add(one, advance)
    return planner.done()


class _Planner:
    """Puts files into packs. What some version has already, or the tree has twice, is left out."""

    def __init__(self, known: Layout | None, least_bytes: int) -> None:
        self._pack_bytes = min(PACK_BYTES, max(SMALL_PACK_BYTES, least_bytes))
        packs = () if known is None else known.packs
        there = () if known is None else known.files
        self._places = {
            one.digest: (packs[one.pack], one.offset) for one in there if one.size_bytes
        }
        self._files: list[tuple[Found, str]] = []
        self._packs: dict[Pack, tuple[Found, ...]] = {}
        self._begin()

    def _begin(self) -> None:
        """Begin a pack; its hash is known when it is complete."""
        self._open: dict[str, int] = {}  # its files' hashes, and where they begin
        self._held: list[Found] = []
        self._hash = hashlib.sha256()
        self._size_bytes = 0

    def add(self, file: Found, advance: Callable[[int], object]) -> None:
        """Hash a file; it goes into the open pack, or is one by itself."""
        is_alone = file.size_bytes >= self._pack_bytes
        whole = self._hash.copy()
        digest = _hashed(file, None if is_alone else whole, advance)
        self._files.append((file, digest))
        if not file.size_bytes or digest in self._places or digest in self._open:
            return
        if is_alone:
            pack = Pack(digest, file.size_bytes)
            self._packs[pack], self._places[digest] = (file,), (pack, 0)
            return
        self._open[digest] = self._size_bytes
        self._held.append(file)
        self._hash = whole
        self._size_bytes += file.size_bytes
        if self._size_bytes >= self._pack_bytes:
            self._close()

    def _close(self) -> None:
        if self._held:
            pack = Pack(self._hash.hexdigest(), self._size_bytes)
            self._packs[pack] = tuple(self._held)
            self._places |= {digest: (pack, offset) for digest, offset in self._open.items()}
        self._begin()

    def done(self) -> Planned:
        """Return the dataset; packs in which it has no file are not of it."""
        self._close()
        rows = [(*one, *self._places.get(one[1], (None, 0))) for one in self._files]
        used = dict.fromkeys(pack for _, _, pack, _ in rows if pack is not None)
        order = {pack: number for number, pack in enumerate(used)}
        listed = tuple(
            File(file.path, file.size_bytes, digest, 0 if pack is None else order[pack], offset)
            for file, digest, pack, offset in rows
        )
        packs = {pack.digest: files for pack, files in self._packs.items()}
        return Planned(Layout(tuple(order), listed), packs)


def _hashed(file: Found, whole: hashlib._Hash | None, advance: Callable[[int], object]) -> str:
    """Return the sha256 of a file, which is added to that of its pack, the `whole`, as well."""
    digest, size_bytes = hashlib.sha256(), 0
    try:
        with file.at.open("rb") as source:
            while data := source.read(READ_BYTES):
                digest.update(data)
                if whole is not None:
                    whole.update(data)
                size_bytes += len(data)
                advance(len(data))
    except OSError as error:
        raise ConfigError(f"{file.at}: cannot be read: {why(error)}; see its rights") from None
    if size_bytes != file.size_bytes:
        raise ConfigError(f"{file.at}: changes while it is read; push again when it is complete")
    return digest.hexdigest()


class PackReader:
    """Reads slices of a pack from its files, one of which is open at a time."""

    def __init__(self, files: Sequence[Found]) -> None:
        """The files stand in the pack in this order."""
        self._files = files
        self._begins = [0, *accumulate(one.size_bytes for one in files)]
        self._at = -1
        self._source: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def read(self, offset: int, length: int) -> bytes:
        """Return a slice, which may go over several files.

        Raises `BadStream` where a file is gone, shorter than it was, or cannot be read.
        """
        pieces = []
        while length > 0:
            number = bisect_right(self._begins, offset) - 1
            piece = self._piece(number, offset, min(length, self._begins[number + 1] - offset))
            pieces.append(piece)
            offset, length = offset + len(piece), length - len(piece)
        return b"".join(pieces)

    def _piece(self, number: int, offset: int, length: int) -> bytes:
        file = self._files[number]
        try:
            if self._source is None or number != self._at:
                self._close()
                self._source, self._at = file.at.open("rb"), number
            self._source.seek(offset - self._begins[number])
            data = self._source.read(length)
        except OSError as error:
            raise BadStream(f"{file.at}: cannot be read: {why(error)}; push again") from None
        if len(data) != length:
            raise BadStream(f"{file.at}: has changed while it was sent; push again")
        return data
