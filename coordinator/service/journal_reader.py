"""Reads the CA's journal, where the coordinator has the CA."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from broker.errors import ConfigError, plain
from broker.pki import ca_journal
from broker.pki.ca import CRL_FILE
from broker.system.deadline import SOON_S, Aside, Looks
from coordinator.core.effects import JournalRead

log = logging.getLogger("fleet.coordinator")

LOOK_EVERY_S: Final = 5.0


class JournalReader:
    """Reads the journal when it has changed; a disk that hangs is left to a later look."""

    def __init__(self, folder: Path, soon_s: float = SOON_S) -> None:
        """`folder` is the CA's. Nothing has been read; see `Looks` for `soon_s`."""
        self._folder = folder
        self._seen: tuple[int, int] | None = None
        self._looks = Looks(self._look, LOOK_EVERY_S, Aside(), soon_s)
        self._failed = ""

    @property
    def due_s(self) -> float:
        """When to look again (monotonic, s)."""
        return self._looks.due_s

    def news(self, mono_s: float) -> JournalRead | None:
        """Return the whole journal if it is time to look and it has changed, else none."""
        try:
            found, failed = self._looks.take(mono_s), ""
        except (OSError, ConfigError) as error:  # TimeoutError, where the disk hangs, is an OSError
            found, failed = None, plain(error)
        if failed and failed != self._failed:
            log.warning("what was done with the CA cannot be read: %s", failed)
        self._failed = failed
        return found

    def _look(self) -> JournalRead | None:
        try:
            found = (self._folder / ca_journal.FILE_NAME).stat()
        except FileNotFoundError:
            return None
        stamp = (found.st_mtime_ns, found.st_size)
        if stamp == self._seen:
            return None
        entries = tuple((one.who, one) for one in ca_journal.read(self._folder).entries)
        crl = (self._folder / CRL_FILE).read_text("ascii")
        self._seen = stamp
        return JournalRead(entries, crl)
