"""Reads the CA's journal, where the coordinator has the CA."""

from __future__ import annotations

import logging
from pathlib import Path

from broker.errors import ConfigError, plain
from broker.pki import ca_journal
from broker.pki.ca import CRL_FILE
from broker.system.deadline import ANSWER_S, Aside
from coordinator.core.effects import JournalRead

log = logging.getLogger("fleet.coordinator")


class JournalReader:
    """Reads the journal when it has changed; a disk that hangs is left to a later look."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the CA's. Nothing has been read."""
        self._folder = folder
        self._seen: tuple[int, int] | None = None
        self._aside = Aside()
        self._failed = ""

    def news(self) -> JournalRead | None:
        """Return the whole journal if it has changed since the last look, else none."""
        found, failed = None, ""
        try:
            found = self._aside.do(self._look).result(ANSWER_S)
        except TimeoutError:
            failed = f"no answer in {ANSWER_S:g} s"
        except (OSError, ConfigError) as error:
            failed = plain(error)
        if failed and failed != self._failed:
            log.warning("what was done with the CA cannot be read: %s", failed)
        self._failed = failed
        if found is None:
            return None
        self._seen, read = found  # not before: an answer that comes too late is lost
        return read

    def _look(self) -> tuple[tuple[int, int], JournalRead] | None:
        try:
            found = (self._folder / ca_journal.FILE_NAME).stat()
        except FileNotFoundError:
            return None
        stamp = (found.st_mtime_ns, found.st_size)
        if stamp == self._seen:
            return None
        entries = tuple((one.who, one) for one in ca_journal.read(self._folder).entries)
        crl = (self._folder / CRL_FILE).read_text("ascii")
        return stamp, JournalRead(entries, crl)
