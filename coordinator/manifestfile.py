"""Whether the file of the manifest has become another since it was read."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

EVERY_S: Final = 1.0  # at most so often is the file looked at


class ManifestFile:
    """One file, which is looked at now and then; it is read again only where it was written."""

    def __init__(self, path: Path) -> None:
        """Take the file that is about to be read as what it is compared with."""
        self._path = path
        self._next_s = 0.0
        self._told = ""
        self.note()

    def note(self) -> None:
        """Remember what it is now: it is read next."""
        self._stamp, self._digest = self._stamp_now(), self._digest_now()

    def was_read(self) -> None:
        """What was said of it holds no more; a change since it was read is said again, at once."""
        self._told, self._next_s = "", 0.0

    def news(self, mono_s: float) -> str | None:
        """Return what is to be said of it, empty where it is as it was; none if that was said."""
        if mono_s < self._next_s:
            return None
        self._next_s = mono_s + EVERY_S
        said = self._said()
        if said == self._told:
            return None
        self._told = said
        return said

    def _said(self) -> str:
        stamp = self._stamp_now()
        if stamp is None:
            return "" if self._stamp is None else "it cannot be read any more"
        if stamp == self._stamp:
            return ""
        if self._digest_now() == self._digest:
            self._stamp = stamp  # written, and the same
            return ""
        return f"it was changed at {datetime.fromtimestamp(stamp[0] / 1e9, UTC):%Y-%m-%d %H:%M} UTC"

    def _stamp_now(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size) if os.access(self._path, os.R_OK) else None

    def _digest_now(self) -> bytes:
        try:
            return hashlib.sha256(self._path.read_bytes()).digest()
        except OSError:
            return b""
