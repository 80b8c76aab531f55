"""Disks that refuse."""

from __future__ import annotations

from typing import Any

from broker.disk import RealDisk


class FullDisk(RealDisk):
    """A disk that refuses to make anything durable while it is `full`."""

    full = False

    def sync(self, file: Any) -> None:
        """See `Disk`."""
        if self.full:
            raise OSError(28, "No space left on device")
        super().sync(file)
