"""The folder of the prepared data: a disk may be mounted late, and may go while an agent runs."""

from __future__ import annotations

import hashlib
import logging
import threading
from pathlib import Path
from typing import Final

log = logging.getLogger("fleet.agent")

SCHEMA_FILE: Final = "feature_schema_v1.json"


class DataFolder:
    """Looks whether the data is there, and logs once when that is not as it was."""

    def __init__(self, folder: Path | None) -> None:
        """Nothing is looked at yet."""
        self._folder = folder
        self._lock = threading.Lock()  # the probe looks from a thread of its own
        self._there: bool | None = None

    def look(self) -> str | None:
        """Return the fingerprint of the data that is there now, none where none can be read."""
        found = self._fingerprint()
        there = found is not None
        with self._lock:
            before, self._there = self._there, there
        if before and not there:
            log.warning(
                "the prepared data in %s has gone, or cannot be read any more: "
                "this host takes no job until it is there again",
                self._folder,
            )
        elif before is None and not there:
            log.warning(
                "%s: this host can take no job until --data names a folder of prepared data "
                "(python -m agent.trainer.prepare --help makes one)",
                self._lack(),
            )
        elif before is False and there:
            log.info("prepared data is in %s now: this host can take jobs", self._folder)
        return found

    def _fingerprint(self) -> str | None:
        if self._folder is None:
            return None
        try:
            return hashlib.sha256((self._folder / SCHEMA_FILE).read_bytes()).hexdigest()
        except OSError:
            return None

    def _lack(self) -> str:
        """Say in which way there is no prepared data."""
        folder = self._folder
        if folder is None:
            return "no folder of prepared data is named"
        if folder.is_dir():
            return f"no prepared data in {folder}"
        return f"there is no folder {folder}"
