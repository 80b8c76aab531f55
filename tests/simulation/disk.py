"""A disk in memory that forgets what was not synced when the power goes.

Names are journalled: a power cut keeps some first part of the changes to names that no
`sync_folder` has made durable, in their order, each whole. Bytes that were not synced may be there,
in part, or as zeros. Killing a process loses nothing: what was written is the system's.
"""

from __future__ import annotations

import errno
import fnmatch
import random
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Self


class Inode:
    """A file's bytes, as they are now and as they are surely on the disk."""

    __slots__ = ("data", "modified_s", "synced")

    def __init__(self, now_s: float) -> None:
        self.data = bytearray()
        self.synced: bytes | None = None
        self.modified_s = now_s


class File:
    """An open file; unbuffered."""

    def __init__(self, disk: SimDisk, inode: Inode, *, append: bool) -> None:
        self._disk = disk
        self.inode = inode
        self._append = append
        self._at = len(inode.data) if append else 0
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def read(self, size: int = -1) -> bytes:
        end = len(self.inode.data) if size < 0 else self._at + size
        data = bytes(self.inode.data[self._at : end])
        self._at += len(data)
        return data

    def readable(self) -> bool:
        """As files are."""
        return True

    def readinto(self, buffer: bytearray) -> int:
        """Read into a buffer, from where we are."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: bytes) -> int:
        self._disk.before_write()
        inode = self.inode
        if self._append:
            self._at = len(inode.data)
        if self._at > len(inode.data):
            inode.data.extend(bytes(self._at - len(inode.data)))
        inode.data[self._at : self._at + len(data)] = data
        self._at += len(data)
        inode.modified_s = self._disk.now_s()
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset if whence == 0 else len(self.inode.data) + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def truncate(self, size: int) -> None:
        del self.inode.data[size:]

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        self.closed = True


class SimDisk:
    """See the module. `before` is called at each operation that changes something."""

    def __init__(
        self, rng: random.Random, now_s: Callable[[], float], before: Callable[[str], None]
    ) -> None:
        self._rng = rng
        self.now_s = now_s
        self._before = before
        self._names: dict[str, Inode | None] = {}  # none: a folder
        self._durable: dict[str, Inode | None] = {}
        self._journal: list[tuple[tuple[str, Inode | str | None], ...]] = []
        self._by_folder: dict[str, dict[str, None]] = {}
        self.trouble = ""  # "", "full", "read-only"

    def before_write(self) -> None:
        """Refuse when the disk is in trouble."""
        self._before("write")
        if self.trouble == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        if self.trouble == "read-only":
            raise OSError(errno.EROFS, "Read-only file system")

    def open(self, path: Path, mode: str) -> File:
        name = str(path)
        inode = self._names.get(name)
        if mode == "rb":
            if inode is None:
                raise FileNotFoundError(errno.ENOENT, "No such file", name)
            return File(self, inode, append=False)
        if inode is None or mode[0] == "w":
            if mode == "r+b":
                raise FileNotFoundError(errno.ENOENT, "No such file", name)
            self.before_write()
            inode = Inode(self.now_s())
            self._change((name, inode))
        return File(self, inode, append=mode[0] == "a")

    def sync(self, file: File) -> None:
        self.before_write()
        file.inode.synced = bytes(file.inode.data)

    def write_new(self, path: str, blocks: Iterable[bytes]) -> None:
        if path in self._names:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        file = self.open(Path(path), "wb")
        for block in blocks:
            file.write(block)

    def sync_all(self, paths: Collection[Path | str]) -> None:
        for path in sorted(map(Path, paths)):
            if self._names.get(str(path)) is None:
                self.sync_folder(path)
            else:
                self.sync(self.open(path, "r+b"))

    def sync_folder(self, folder: Path) -> None:
        self._before("sync_folder")
        prefix, last = str(folder), 0
        for number, change in enumerate(self._journal, 1):
            for name, _ in change:
                if name.rpartition("/")[0] == prefix:
                    last = number
        self._settle(last)

    def replace(self, old: Path, new: Path) -> None:
        self.before_write()
        was, name = str(old), str(new)
        if was not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such file", was)
        inode = self._names[was]
        if inode is not None and self._names.get(name) is inode:
            return  # two names of one file: both stay
        moved = [was] if inode is not None else self._under(old)
        if inode is None and len(self._under(new)) > 1:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", name)
        gone: list[tuple[str, Inode | str | None]] = [(one, "gone") for one in reversed(moved)]
        made = [(name + one.removeprefix(was), self._names[one]) for one in moved]
        self._change(*gone, *made)

    def link(self, file: Path, new: Path) -> None:
        self.before_write()
        inode = self._names.get(str(file))
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(file))
        if str(new) in self._names:
            raise FileExistsError(errno.EEXIST, "File exists", str(new))
        self._change((str(new), inode))

    def protect(self, path: Path) -> None:
        """Do nothing: nobody else writes here."""

    def unlink(self, path: Path) -> None:
        if self.trouble == "read-only":
            self.before_write()
        self._before("unlink")
        if self._names.get(str(path)) is not None:
            self._change((str(path), "gone"))

    def make_folder(self, folder: Path) -> None:
        if str(folder) in self._names:
            return
        levels = str(folder).split("/")
        for count in range(2, len(levels) + 1):
            name = "/".join(levels[:count])
            if name not in self._names:
                self.before_write()
                self._change((name, None))

    def remove_tree(self, folder: Path) -> None:
        if self.trouble == "read-only":
            return
        self._before("remove_tree")
        for name in reversed(self._under(folder)):
            self._change((name, "gone"))

    def _under(self, folder: Path) -> list[str]:
        """Return a folder, if it is there, and all that is in it; each after what it is in."""
        whole, prefix = str(folder), f"{folder}/"
        return sorted(name for name in self._names if name == whole or name.startswith(prefix))

    def glob(self, folder: Path, pattern: str) -> list[Path]:
        found = [str(folder)]
        for part in pattern.split("/"):
            found = [
                f"{above}/{name}"
                for above in found
                for name in self._by_folder.get(above, ())
                if fnmatch.fnmatchcase(name, part)
            ]
        return [Path(name) for name in sorted(found)]

    def size_bytes(self, path: Path) -> int | None:
        inode = self._names.get(str(path))
        return None if inode is None else len(inode.data)

    def modified_s(self, path: Path) -> float:
        inode = self._names.get(str(path))
        if inode is None and str(path) in self._names:
            return self.now_s()  # when a folder has changed is not kept
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        return inode.modified_s

    def tree_bytes(self, folder: Path) -> int:
        found = (self._names[name] for name in self._under(folder))
        return sum(len(one.data) for one in {id(one): one for one in found if one}.values())

    def free_bytes(self, folder: Path) -> int:
        return 0 if self.trouble == "full" else 1 << 40

    def bytes_of(self, path: Path) -> bytes | None:
        """Return a file's bytes for a check, or none."""
        inode = self._names.get(str(path))
        return None if inode is None else bytes(inode.data)

    def rot(self, path: Path) -> None:
        """Flip a bit of a file, durably."""
        inode = self._names.get(str(path))
        if inode is not None and inode.data:
            at = self._rng.randrange(len(inode.data))
            inode.data[at] ^= 1 << self._rng.randrange(8)
            inode.synced = bytes(inode.data)

    def total_bytes(self) -> int:
        """Return how much is in use."""
        return sum(len(inode.data) for inode in self._names.values() if inode is not None)

    def power_cut(self) -> None:
        """Lose what no sync has made durable, or some of it."""
        self._settle(self._rng.randint(0, len(self._journal)))
        self._journal.clear()
        self._names = dict(self._durable)
        for inode in {id(one): one for one in self._names.values() if one is not None}.values():
            if inode.synced is None or inode.data != inode.synced:
                inode.data = self._torn(inode)
                inode.synced = bytes(inode.data)
        self._by_folder = {}
        for name in self._names:
            self._list(name)

    def _torn(self, inode: Inode) -> bytearray:
        old, new = inode.synced or b"", bytes(inode.data)
        match self._rng.randrange(4):
            case 0:
                return bytearray(old)
            case 1:
                return bytearray(new[: self._rng.randint(0, len(new))])
            case 2:
                return bytearray(old[: len(new)] + bytes(max(0, len(new) - len(old))))
            case _:
                return bytearray(new)

    def _change(self, *change: tuple[str, Inode | str | None]) -> None:
        for name, what in change:
            if what == "gone":
                del self._names[name]
                del self._by_folder[name.rpartition("/")[0]][name.rpartition("/")[2]]
            else:
                assert not isinstance(what, str)
                self._names[name] = what
                self._list(name)
        self._journal.append(change)

    def _list(self, name: str) -> None:
        folder, _, last = name.rpartition("/")
        self._by_folder.setdefault(folder, {})[last] = None

    def _settle(self, count: int) -> None:
        for change in self._journal[:count]:
            for name, what in change:
                if isinstance(what, str):
                    self._durable.pop(name, None)
                else:
                    self._durable[name] = what
        del self._journal[:count]
