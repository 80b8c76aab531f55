"""The folder of the prepared data: a disk may be mounted late, go, or hang while an agent runs."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
from pathlib import Path
from typing import Final

log = logging.getLogger("fleet.agent")

SCHEMA_FILE: Final = "feature_schema_v1.json"
ANSWER_S: Final = 10.0  # a disk that sleeps may need most of it to turn again


class DataFolder:
    """Looks whether the data is there, and logs once when that is not as it was.

    Each look is on a thread of its own, one at a time: a disk that hangs, as one of a network may,
    holds that thread and nothing else, and until it answers the data counts as not there.
    """

    def __init__(self, folder: Path | None, answer_s: float = ANSWER_S) -> None:
        """Nothing is looked at yet. `answer_s` is how long a look may take, in seconds."""
        self.known: str | None = None
        self._folder = folder
        self._answer_s = answer_s
        self._lock = threading.Lock()  # several threads look
        self._looking: _Look | None = None
        self._there: bool | None = None

    def look(self) -> str | None:
        """Return the fingerprint of the data that is there now, none where none can be read.

        It is `known` then. Blocks for `answer_s` at most, and not at all while a look is late.
        """
        with self._lock:
            look = self._looking
            if look is None or look.done.is_set():
                look = self._looking = _Look(self._folder)
        answered = look.done.wait(0.0 if look.late else self._answer_s)
        look.late = not answered
        found = look.found if answered else None
        there = found is not None
        with self._lock:
            before, self._there, self.known = self._there, there, found
        if there and before is False:
            log.info("prepared data is in %s now: this host can take jobs", self._folder)
        elif not there and before is not False:
            self._warn(look, answered=answered, before=before)
        return found

    def _warn(self, look: _Look, *, answered: bool, before: bool | None) -> None:
        if not answered:
            log.warning(
                "the prepared data in %s has not answered for %g s: "
                "this host takes no job until it does",
                self._folder,
                self._answer_s,
            )
        elif before:
            log.warning(
                "the prepared data in %s has gone, or cannot be read any more: "
                "this host takes no job until it is there again",
                self._folder,
            )
        else:
            log.warning(
                "%s: this host can take no job until --data names a folder of prepared data "
                "(python -m agent.trainer.prepare --help makes one)",
                look.lack,
            )


class _Look:
    """One look at a folder: what was `found`, or in which way it is a `lack`, once it is `done`."""

    def __init__(self, folder: Path | None) -> None:
        self.done = threading.Event()
        self.late = False
        self.found: str | None = None
        self.lack = "no folder of prepared data is named"
        if folder is None:
            self.done.set()
            return
        # A daemon, since an agent that ends cannot wait for a disk that hangs.
        threading.Thread(target=self._look, args=(folder,), name="fleet-data", daemon=True).start()

    def _look(self, folder: Path) -> None:
        self.lack = f"no prepared data in {folder}"
        try:
            with contextlib.suppress(OSError):
                if not folder.is_dir():
                    self.lack = f"there is no folder {folder}"
                self.found = hashlib.sha256((folder / SCHEMA_FILE).read_bytes()).hexdigest()
        finally:
            self.done.set()
