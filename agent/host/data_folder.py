"""The folder of the prepared data: a disk may be mounted late, go, or hang while an agent runs."""

from __future__ import annotations

import hashlib
import logging
import threading
from pathlib import Path
from typing import Final

from broker.system.deadline import Aside

log = logging.getLogger("fleet.agent")

SCHEMA_FILE: Final = "feature_schema_v1.json"
MAKE: Final = "python -m agent.trainer.prepare --help tells how it is made"
ANSWER_S: Final = 10.0  # a disk that sleeps may need most of it to turn again


class DataFolder:
    """Looks whether the data is there, and logs once when that is not as it was.

    A disk that hangs, as one of a network may, holds one thread and nothing else; until it answers
    the data counts as not there.
    """

    def __init__(self, folder: Path | None, answer_s: float = ANSWER_S) -> None:
        """Nothing is looked at yet. `answer_s` is how long a look may take, in seconds."""
        self.known: str | None = None
        self._folder = folder
        self._answer_s = answer_s
        self._aside = Aside()
        self._is_late = False
        self._lock = threading.Lock()  # several threads look
        self._there: bool | None = None

    def look(self) -> str | None:
        """Return the fingerprint of the data that is there now, none where none can be read.

        It is `known` then. Blocks for `answer_s` at most, and not at all while a look is late.
        """
        found, lack, late = None, "no folder of prepared data is named", False
        if self._folder is not None:
            try:
                look = self._aside.do(self._read, 0.0 if self._is_late else self._answer_s)
                found, lack = look.result(self._answer_s)
            except TimeoutError:
                late = True
                lack = f"the prepared data in {self._folder} has not answered"
                lack += f" for {self._answer_s:g} s"
        with self._lock:
            self._is_late = late
            before, self._there, self.known = self._there, found is not None, found
        if found is not None and before is False:
            log.info("prepared data is in %s now", self._folder)
        elif found is None and before is not False:
            log.warning(
                "%s: this host takes no job that reads it until there is some; %s", lack, MAKE
            )
        return found

    def _read(self) -> tuple[str | None, str]:
        """Return the data's fingerprint, or in which way it is not there."""
        assert self._folder is not None  # noqa: S101 - `look` has asked
        try:
            if not self._folder.is_dir():
                return None, f"there is no folder {self._folder}"
            data = (self._folder / SCHEMA_FILE).read_bytes()
        except OSError:
            return None, f"no prepared data in {self._folder}"
        return hashlib.sha256(data).hexdigest(), ""
