"""Datasets on this host, each a folder by its digest; content that several have lies here once.

    <root>/files/<aa>/<sha256>     each file that a dataset has, under the hash of its bytes
    <root>/trees/<digest>/         a dataset: hard links to these, see `CachedFolders`
    <root>/layouts/<sha256>        the layout of a dataset that is on its way here
    <root>/<job id>.<attempt>.<number>.fetching    a layout or pack that is coming, see `Fetched`

Nothing is used unless it hashes to its name: layouts and packs as they come, the listing of each
layout, each file of a pack. Files and trees are made beside their places, made durable, and renamed
then: what is there is whole. What a killed agent has left is gone on with.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final

from agent.programs.cached_folders import KEPT_S, CachedFolders
from agent.spool.fetched import Fetched
from broker.clock import Clock
from broker.errors import BadStream
from broker.programs.datasets import MAX_LAYOUT_BYTES, File, Layout, Pack, read_layout
from broker.programs.unusable import Unusable
from broker.protocol.messages import Dataset
from broker.system.files import RealDisk, read

_BLOCK_BYTES: Final = 1024 * 1024
_MAKING: Final = ".making"
LEFT_S: Final = 86_400.0  # files of a dataset that did not come whole; its job may come again


@dataclass(slots=True)
class _Wanted:
    """A dataset that is on its way: which files of which packs may not be here yet."""

    layout: Layout
    lacking: dict[int, list[File]]

    def number_of(self, digest: str) -> int | None:
        """Return which of the packs that are lacking it is; none: it is none of them."""
        packs = self.layout.packs
        return next((number for number in self.lacking if packs[number].digest == digest), None)


class HostData:
    """The folder of datasets. Its methods may be called on any thread, and raise OSError."""

    def __init__(
        self, root: Path, limit_bytes: float, clock: Clock, disk: RealDisk | None = None
    ) -> None:
        """Make the folders; drop what was half made. `held` returns the digests of what is here."""
        self._disk = disk or RealDisk()
        self._root, self._limit_bytes, self._clock = root, limit_bytes, clock
        self._files, self._layouts = root / "files", root / "layouts"
        self._wanted: dict[str, _Wanted] = {}
        self._changing = threading.Lock()  # of files and trees: what is found is not deleted
        for folder in (self._files, self._layouts):
            self._disk.make_folder(folder)
        for path in self._disk.glob(self._files, f"*/*{_MAKING}"):
            self._disk.unlink(path)
        self._trees = CachedFolders(root / "trees", limit_bytes, self._disk)
        self.fetched = Fetched(root, self._disk)
        self.held = self._trees.held

    def folder(self, digest: str) -> Path | None:
        """Return the folder of a dataset, and note its use; none if it is not here."""
        return self._trees.folder(digest)

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
        with self.fetched.whole(job_id, attempt, digest) as part, self._changing:
            for one in datasets:
                wanted = self._wanted.get(one.digest)
                if one.layout == digest:
                    self._keep({part: self._layouts / digest})
                    break
                number = None if wanted is None else wanted.number_of(digest)
                if wanted is not None and number is not None:
                    with contextlib.suppress(OSError):  # there may be room when it is unpacked
                        if (following := self._next(wanted, number)) is not None:
                            early(following)
                    self._unpack(wanted, number, part)

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
            path = self._layouts / dataset.layout
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
        self._build(self._trees.path(dataset.digest), wanted.layout)
        self._trees.folder(dataset.digest)
        self._disk.unlink(self._layouts / dataset.layout)
        return None

    def _read(self, dataset: Dataset, path: Path) -> _Wanted:
        try:
            layout = read_layout(read(self._disk, path))
        except BadStream:  # its disk has changed it
            self._disk.unlink(path)
            raise
        if layout.digest() != dataset.digest:
            raise BadStream(f"the layout of {dataset.name} is that of another dataset")
        lacking: dict[int, list[File]] = {}
        for one in {one.digest: one for one in layout.files if one.size_bytes}.values():
            if not self._has(one):
                lacking.setdefault(one.pack, []).append(one)
        return _Wanted(layout, lacking)

    def _next(self, wanted: _Wanted, coming: int = -1) -> Pack | None:
        """Return the first pack, but the one that is `coming`, with files that are not here.

        Raises `Unusable` unless there is room for it, and once more for the files that it has.
        """
        for number, files in sorted(wanted.lacking.items()):
            if number == coming:
                continue
            if all(map(self._has, files)):
                del wanted.lacking[number]
                continue
            pack = wanted.layout.packs[number]
            needed_bytes = pack.size_bytes * (1 if files[0].digest == pack.digest else 2)
            if (free_bytes := self._disk.free_bytes(self._root)) < needed_bytes:
                raise Unusable("no-room", needed_bytes=needed_bytes, free_bytes=free_bytes)
            return pack
        return None

    def _unpack(self, wanted: _Wanted, number: int, part: Path) -> None:
        """Take the files of a pack that are not here yet."""
        digest = wanted.layout.packs[number].digest
        files = [one for one in wanted.lacking[number] if not self._has(one)]
        for prefix in {one.digest[:2] for one in files}:
            self._disk.make_folder(self._files / prefix)
        is_one = [(one.digest, one.size_bytes) for one in files] == [(digest, self._size(part))]
        made = {
            part if is_one else self._file(one.digest, _MAKING): self._file(one.digest)
            for one in files
        }
        try:
            if not is_one:
                with self._disk.open(part, "rb") as source:
                    for one, making in zip(files, made, strict=True):
                        self._take_out(source, one, making)
            self._keep(made)
        except BaseException:
            for making in made:
                self._disk.unlink(making)
            raise
        del wanted.lacking[number]

    def _take_out(self, source: IO[bytes], file: File, path: Path) -> None:
        """Copy a file out of its pack. Raises `BadStream` unless it hashes to its name."""
        source.seek(file.offset)
        with self._disk.open(path, "wb") as target:
            if _copy(source, target, file.size_bytes) != file.digest:
                raise BadStream(f"{file.path[:80]!r} is not in its pack as its layout says")

    def _keep(self, made: Mapping[Path, Path]) -> None:
        """Make files durable, all that are written by now, and give them their names."""
        self._disk.sync_all(made)
        for making, path in made.items():
            self._disk.protect(making)
            self._disk.replace(making, path)
        self._disk.sync_all({path.parent for path in made.values()})

    def _build(self, tree: Path, layout: Layout) -> None:
        """Make a tree of the files that are here."""
        making = tree.with_name(tree.name + _MAKING)
        self._disk.remove_tree(making)
        folders = {"."}
        self._disk.make_folder(making)
        for file in layout.files:
            folder, _, _ = file.path.rpartition("/")
            if folder and folder not in folders:
                self._disk.make_folder(making / folder)
                folders.update(str(one) for one in PurePosixPath(file.path).parents)
            self._link(file, making / file.path)
        self._disk.sync_all([making / one for one in sorted(folders)])
        self._disk.replace(making, tree)
        self._disk.sync_folder(tree.parent)

    def _link(self, file: File, path: Path) -> None:
        try:
            if file.size_bytes:
                self._disk.link(self._file(file.digest), path)
                return
        except OSError as error:
            if error.errno != errno.EMLINK:  # it has as many names as this file system allows
                raise
        with self._disk.open(path, "wb") as target:
            if file.size_bytes:
                with self._disk.open(self._file(file.digest), "rb") as source:
                    _copy(source, target, file.size_bytes)
            self._disk.sync(target)
        self._disk.protect(path)

    def _make_room(self, in_use: Collection[str], needed_bytes: int) -> None:
        """Delete trees that are not in use, by their use, until there is room for so much."""
        for digest in {*self._wanted} - {*in_use}:
            del self._wanted[digest]

        def is_room(total_bytes: int) -> bool:
            is_within = total_bytes + needed_bytes <= self._limit_bytes
            return is_within and self._disk.free_bytes(self._root) >= needed_bytes

        if is_room(self._sweep(LEFT_S)):
            return
        total_bytes = self._sweep(KEPT_S)
        for tree in self._trees.by_use():
            if is_room(total_bytes):
                break
            if self._trees.is_removed(tree, in_use, self._clock().wall_s):
                total_bytes = self._sweep(KEPT_S)

    def _sweep(self, age_s: float) -> int:
        """Delete layouts, and files that no tree has, unless wanted; return the size of the rest.

        What is younger than `age_s` stays.
        """
        kept = {file.digest for one in self._wanted.values() for file in one.layout.files}
        oldest_s, total_bytes = self._clock().wall_s - age_s, 0
        for folder in (self._layouts, *self._disk.glob(self._files, "*")):
            for path in self._disk.glob(folder, "*"):
                is_unused = folder == self._layouts or self._disk.links(path) == 1
                if is_unused and path.name not in kept and self._disk.modified_s(path) < oldest_s:
                    self._disk.unlink(path)
                else:
                    total_bytes += self._size(path)
        return total_bytes

    def _has(self, file: File) -> bool:
        return self._disk.size_bytes(self._file(file.digest)) == file.size_bytes

    def _size(self, path: Path) -> int:
        return self._disk.size_bytes(path) or 0

    def _file(self, digest: str, suffix: str = "") -> Path:
        return self._files / f"{digest[:2]}/{digest}{suffix}"


def _copy(source: IO[bytes], target: IO[bytes], size_bytes: int) -> str:
    """Copy so many bytes, or all that there are; return their sha256."""
    copied = hashlib.sha256()
    while size_bytes and (data := source.read(min(size_bytes, _BLOCK_BYTES))):
        copied.update(data)
        target.write(data)
        size_bytes -= len(data)
    return copied.hexdigest()
