"""Datasets on this host, each a folder by its digest; content that several have lies here once.

    <root>/whole/<digest>/files/    a dataset, whole; what another one has is a hard link to that
    <root>/whole/<digest>/listing   its listing, see `broker.programs.datasets`
    <root>/coming/<digest>/         one that is on its way here, with its layout as <sha256>
    <root>/<job id>.<attempt>.<number>.fetching    a layout or pack that is coming, see `Fetched`

Nothing is used unless it hashes to its name: layouts and packs as they come, the listing of each
layout, each file of a pack. A file is made in its place. The folder of a dataset is renamed when
all of it is there and durable. What an earlier agent has left of one is hashed again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import IO, Final

from agent.programs.cached_folders import KEPT_S, CachedFolders
from agent.spool.fetched import Fetched
from broker.clock import Clock
from broker.errors import BadStream
from broker.programs.datasets import MAX_LAYOUT_BYTES, File, Layout, Pack, listing, read_layout
from broker.programs.unusable import Unusable
from broker.protocol.messages import Dataset
from broker.system.files import RealDisk, read, write_atomically

_BLOCK_BYTES: Final = 1024 * 1024
_WRITERS: Final = 2  # threads that make files
_LEAST_SHARE: Final = 50  # files for one of them
FILES: Final = "files"
LISTING: Final = "listing"
LEFT_S: Final = 86_400.0  # since something came of a dataset; its job may come again


@dataclass(slots=True)
class _Wanted:
    """A dataset that is on its way: which files of which packs are not here yet, by offset."""

    path: Path  # of its layout
    layout: Layout
    lacking: dict[int, list[File]]

    @property
    def files(self) -> Path:
        """Where its files are made."""
        return self.path.parent / FILES

    def number_of(self, digest: str) -> int | None:
        """Return which of the packs that are lacking it is; none: it is none of them."""
        packs = self.layout.packs
        return next((number for number in self.lacking if packs[number].digest == digest), None)


class HostData:
    """The folder of datasets. Its methods may be called on any thread, and raise OSError."""

    def __init__(
        self, root: Path, limit_bytes: float, clock: Clock, disk: RealDisk | None = None
    ) -> None:
        """Make the folders. `held` returns the digests of what is here."""
        self._disk = disk or RealDisk()
        self._root, self._limit_bytes, self._clock = root, limit_bytes, clock
        self._wanted: dict[str, _Wanted] = {}
        self._changing = threading.Lock()  # of files and trees: what is found is not deleted
        self._coming = root / "coming"
        self._disk.make_folder(self._coming)
        self._trees = CachedFolders(root / "whole", limit_bytes, self._disk)
        self.fetched = Fetched(root, self._disk)
        self.held = self._trees.held

    def folder(self, digest: str) -> Path | None:
        """Return the folder of a dataset, and note its use; none if it is not here."""
        tree = self._trees.folder(digest)
        return None if tree is None else tree / FILES

    def missing(self, datasets: Iterable[Dataset], in_use: Collection[str]) -> Pack | None:
        """Return the next layout or pack that these datasets lack; none: all are here.

        What was used least lately makes room for them, and none of the digests in use. Raises
        `BadStream` for a layout that is not what was meant.
        """
        for one in datasets:
            if self._trees.folder(one.digest) is None:
                with self._changing:
                    lacks = self._lacks(one, {*in_use, one.digest})
                if lacks is not None:
                    return lacks
        return None

    def install(
        self, job_id: str, attempt: int, datasets: Iterable[Dataset], digest: str,
        early: Callable[[Pack], object] = lambda _: None,
    ) -> None:  # fmt: skip
        """Take a layout or a pack that an attempt has fetched for its datasets.

        `early` is told of the next pack, if there is one, before this one is unpacked. Raises
        `BadStream` when it is not what was meant.
        """
        made: list[str] = []
        with self.fetched.whole(job_id, attempt, digest) as part, self._changing:
            for one in datasets:
                wanted = self._wanted.get(one.digest)
                if one.layout == digest:
                    self._note_coming(self._coming / one.digest)
                    made = [self._take(part, self._coming / one.digest / digest)]
                    break
                number = None if wanted is None else wanted.number_of(digest)
                if wanted is not None and number is not None:
                    with contextlib.suppress(OSError):  # there may be room when it is unpacked
                        if (following := self._next(wanted, number)) is not None:
                            early(following)
                    made = self._unpack(wanted, number, part)
        # The next one may be unpacked meanwhile; after the last one, all are elsewhere, and synced.
        with contextlib.suppress(FileNotFoundError):
            self._disk.sync_all(made)

    def collect(self, in_use: Collection[str]) -> None:
        """Delete what was used least lately until the rest fits; nothing in use or used lately."""
        with self._changing:
            self._make_room(in_use, 0)

    def _lacks(self, dataset: Dataset, in_use: Collection[str]) -> Pack | None:
        """Return what is missing of a dataset; make its tree of what is here."""
        if self._trees.folder(dataset.digest) is not None:
            return None  # another was quicker
        wanted = self._wanted.get(dataset.digest)
        if wanted is None:
            path = self._coming / dataset.digest / dataset.layout
            if self._disk.size_bytes(path) is None:
                if dataset.layout_bytes > MAX_LAYOUT_BYTES:
                    raise Unusable("too-large", limit_bytes=MAX_LAYOUT_BYTES)
                return Pack(dataset.layout, dataset.layout_bytes)
            wanted = self._wanted[dataset.digest] = self._read(dataset, path)
            packs = wanted.layout.packs
            self._make_room(in_use, sum(packs[number].size_bytes for number in wanted.lacking))
        if (pack := self._next(wanted)) is not None:
            return pack
        del self._wanted[dataset.digest]  # first, so that all is looked for if that fails
        self._complete(wanted, self._trees.path(dataset.digest))
        self._trees.folder(dataset.digest)
        return None

    def _read(self, dataset: Dataset, path: Path) -> _Wanted:
        """Read a layout; make its folders, and files of what other datasets have."""
        try:
            layout = read_layout(read(self._disk, path))
        except BadStream:  # its disk has changed it
            self._disk.unlink(path)
            raise
        if layout.digest() != dataset.digest:
            raise BadStream(f"the layout of {dataset.name} is that of another dataset")
        files, here = path.parent / FILES, set[str]()
        wanted = {one.digest: one for one in reversed(layout.files) if one.size_bytes}
        self._find_left(files, wanted, here)
        for folder in _folders(layout):
            self._disk.make_folder(files / folder)
        self._find_elsewhere(files, wanted, here)
        lacking: dict[int, list[File]] = {}
        for one in sorted(wanted.values(), key=attrgetter("pack", "offset")):
            if one.digest not in here:
                lacking.setdefault(one.pack, []).append(one)
        return _Wanted(path, layout, lacking)

    def _find_left(self, files: Path, wanted: Mapping[str, File], here: set[str]) -> None:
        """Add to `here` what an earlier agent has left whole."""
        if not self._disk.glob(files, "*"):
            return
        for digest, one in wanted.items():
            path = files / one.path
            if self._disk.size_bytes(path) == one.size_bytes:
                with self._disk.open(path, "rb") as source:
                    if hashlib.file_digest(source, "sha256").hexdigest() == digest:
                        here.add(digest)

    def _find_elsewhere(self, files: Path, wanted: Mapping[str, File], here: set[str]) -> None:
        """Add to `here` what another dataset has; it is linked."""
        for tree in self._trees.by_use():
            told = read(self._disk, tree / LISTING)
            if hashlib.sha256(told).hexdigest() != tree.name:
                continue  # its disk has changed it
            for line in told.splitlines():
                digest, size_bytes, path = line.decode().split(" ", 2)
                one = wanted.get(digest)
                if one is not None and digest not in here and int(size_bytes) == one.size_bytes:
                    self._link(tree / FILES / path, files / one.path)
                    here.add(digest)

    def _next(self, wanted: _Wanted, coming: int = -1) -> Pack | None:
        """Return the first pack, but the one that is `coming`, with files that are not here.

        Raises `Unusable` unless there is room for it, and once more for the files that it has.
        """
        number = next((one for one in wanted.lacking if one != coming), None)
        if number is None:
            return None
        pack, files = wanted.layout.packs[number], wanted.lacking[number]
        needed_bytes = pack.size_bytes * (1 if files[0].digest == pack.digest else 2)
        if (free_bytes := self._disk.free_bytes(self._root)) < needed_bytes:
            raise Unusable("no-room", needed_bytes=needed_bytes, free_bytes=free_bytes)
        return pack

    def _unpack(self, wanted: _Wanted, number: int, part: Path) -> list[str]:
        """Take the files of a pack that are not here yet; return their paths."""
        pack, files = wanted.layout.packs[number], wanted.lacking[number]
        at = str(wanted.files)
        paths = [f"{at}/{one.path}" for one in files]
        if [(one.digest, one.size_bytes) for one in files] == [pack]:
            self._take(part, Path(paths[0]))
        else:
            share = max(_LEAST_SHARE, -(-len(files) // _WRITERS))
            shares = [files[at : at + share] for at in range(0, len(files), share)]
            with ThreadPoolExecutor(_WRITERS) as pool:  # the system makes files on several cores
                list(pool.map(partial(self._take_out, part, at), shares))
        self._note_coming(wanted.path.parent)
        del wanted.lacking[number]
        return paths

    def _note_coming(self, coming: Path) -> None:
        """Note that something of a dataset has come; its listing is empty until it is whole."""
        self._disk.make_folder(coming)
        write_atomically(self._disk, coming / LISTING, b"", durable=False)

    def _take(self, part: Path, path: Path) -> str:
        self._disk.protect(part)
        self._disk.replace(part, path)
        return str(path)

    def _take_out(self, part: Path, at: str, files: Iterable[File]) -> None:
        """Copy files out of their pack. Raises `BadStream` unless each hashes to its name."""
        with self._disk.open(part, "rb") as source:
            for one in files:
                source.seek(one.offset)
                copied = hashlib.sha256()
                self._write(f"{at}/{one.path}", _hashed(source, one.size_bytes, copied))
                if copied.hexdigest() != one.digest:
                    raise BadStream(f"{one.path[:80]!r} is not in its pack as its layout says")

    def _complete(self, wanted: _Wanted, tree: Path) -> None:
        """Let a dataset be used, all of whose contents are here."""
        layout, at, coming = wanted.layout, str(wanted.files), wanted.path.parent
        firsts: dict[str, str] = {}
        for one in layout.files:
            first = firsts.setdefault(one.digest, one.path)
            if not one.size_bytes:
                self._write(f"{at}/{one.path}", ())
            elif first != one.path:
                self._link(wanted.files / first, wanted.files / one.path)
        write_atomically(self._disk, coming / LISTING, listing(layout.files))
        folders = [coming, *(wanted.files / one for one in _folders(layout))]
        self._disk.sync_all([*(f"{at}/{one.path}" for one in layout.files), *folders])
        self._disk.unlink(wanted.path)
        self._disk.replace(coming, tree)
        self._disk.sync_folder(tree.parent)

    def _write(self, path: str, blocks: Iterable[bytes]) -> None:
        try:
            self._disk.write_new(path, blocks)
        except FileExistsError:  # of an earlier try
            self._disk.unlink(Path(path))
            self._disk.write_new(path, blocks)

    def _link(self, file: Path, path: Path) -> None:
        self._disk.unlink(path)
        try:
            self._disk.link(file, path)
        except OSError as error:
            if error.errno != errno.EMLINK:  # it has as many names as this file system allows
                raise
            with self._disk.open(file, "rb") as source:
                self._write(str(path), iter(partial(source.read, _BLOCK_BYTES), b""))

    def _make_room(self, in_use: Collection[str], needed_bytes: int) -> None:
        """Delete trees that are not in use, by their use, until there is room for so much."""
        for digest in {*self._wanted} - {*in_use}:
            del self._wanted[digest]

        def is_room(total_bytes: int) -> bool:
            is_within = total_bytes + needed_bytes <= self._limit_bytes
            return is_within and self._disk.free_bytes(self._root) >= needed_bytes

        if is_room(self._sweep(in_use, LEFT_S)):
            return
        total_bytes = self._sweep(in_use, KEPT_S)
        for tree in self._trees.by_use():
            if is_room(total_bytes):
                break
            if self._trees.is_removed(tree, in_use, self._clock().wall_s):
                total_bytes = self._disk.tree_bytes(self._root)

    def _sweep(self, in_use: Collection[str], age_s: float) -> int:
        """Delete datasets of which nothing came for `age_s`; return the size of what is left."""
        oldest_s = self._clock().wall_s - age_s
        for path in self._disk.glob(self._coming, "*"):
            mark = path / LISTING
            is_new = (
                self._disk.size_bytes(mark) is not None and self._disk.modified_s(mark) >= oldest_s
            )
            if path.name not in in_use and not is_new:
                self._disk.remove_tree(path)
        return self._disk.tree_bytes(self._root)


def _folders(layout: Layout) -> list[str]:
    """Return the folders of a dataset, sorted, each after what it is in."""
    found = {""}
    for one in layout.files:
        folder, _, _ = one.path.rpartition("/")
        while folder not in found:
            found.add(folder)
            folder, _, _ = folder.rpartition("/")
    return sorted(found)


def _hashed(source: IO[bytes], size_bytes: int, digest: hashlib._Hash) -> Iterator[bytes]:
    """Yield so many bytes, or all that there are; they are hashed."""
    while size_bytes and (data := source.read(min(size_bytes, _BLOCK_BYTES))):
        digest.update(data)
        yield data
        size_bytes -= len(data)
