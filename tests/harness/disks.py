"""Disks that refuse, or hang."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
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
