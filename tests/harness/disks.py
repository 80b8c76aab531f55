"""Disks that refuse, hang, or are those of a program that is killed."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from broker.system.files import RealDisk


class FullDisk(RealDisk):
    """A disk that refuses to make anything durable while it is `full`."""

    full = False

    def sync(self, file: Any) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        super().sync(file)


NEVER = 10**9


class Dying(BaseException):
    """The agent is killed."""


class FaultyDisk(RealDisk):
    """A disk on which an operation that changes something fails, the `at`-th from now on."""

    def __init__(self) -> None:
        self.at = NEVER
        self.error: BaseException = Dying()
        self.free = 1 << 50

    def _change(self) -> None:
        self.at -= 1
        if self.at <= 0:
            raise self.error

    def open(self, path: Path, mode: str) -> Any:
        if mode != "rb":
            self._change()
        return super().open(path, mode)

    def write_new(self, path: str, blocks: Iterable[bytes]) -> None:
        def failing() -> Iterator[bytes]:
            self._change()  # the file is there, and empty
            yield from blocks

        super().write_new(path, failing())

    def sync(self, file: Any) -> None:
        self._change()
        super().sync(file)

    def sync_all(self, paths: Collection[Path | str]) -> None:
        self._change()
        super().sync_all(paths)

    def link(self, file: Path, new: Path) -> None:
        self._change()
        super().link(file, new)

    def replace(self, old: Path, new: Path) -> None:
        self._change()
        super().replace(old, new)

    def make_folder(self, folder: Path) -> None:
        self._change()
        super().make_folder(folder)

    def unlink(self, path: Path) -> None:
        if isinstance(self.error, Dying):  # a full disk lets that pass
            self._change()
        super().unlink(path)

    def free_bytes(self, folder: Path) -> int:
        return self.free


class SlowDisk(FaultyDisk):
    """A disk on which something happens while files are made durable, once."""

    meanwhile: Callable[[], object] | None = None

    def sync_all(self, paths: Collection[Path | str]) -> None:
        if (meanwhile := self.meanwhile) is not None:
            self.meanwhile = None
            meanwhile()
        super().sync_all(paths)


@contextlib.contextmanager
def hanging(path: Path) -> Iterator[None]:
    """Have whoever opens a file wait, as on a disk that hangs; by a lease on it, on Linux."""
    import fcntl

    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # the system asks to give it back
    descriptor = os.open(path, os.O_RDWR)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    try:
        yield
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        os.close(descriptor)
        signal.signal(signal.SIGIO, before)
