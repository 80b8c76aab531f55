"""Finds a series that is there under two names: it would be trained on and tested on."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from agent.trainer.common.arrays import Floats
from agent.trainer.common.errors import BadInputError
from agent.trainer.data.schema import EpisodeEntry


class SeriesHashes:
    """The sha256 of each episode's values, labels aside; rows come in order, episode by episode."""

    def __init__(self, raw: Path) -> None:
        self._raw = raw
        self._entry: EpisodeEntry | None = None
        self._hash = hashlib.sha256()
        self._known: dict[bytes, EpisodeEntry] = {}

    def append(self, entry: EpisodeEntry, values: Floats) -> None:
        """Take the next rows (n, channels) of an episode. Raises BadInputError."""
        if entry != self._entry:
            self.finish()
            self._entry, self._hash = entry, hashlib.sha256()
        self._hash.update(np.ascontiguousarray(values, dtype="<f4").data)

    def finish(self) -> None:
        """Take the last episode as whole. Raises BadInputError."""
        if self._entry is None:
            return
        first = self._known.setdefault(self._hash.digest(), self._entry)
        if first != self._entry:
            this, other = (
                f"host {one.host}, episode {one.episode}" for one in (self._entry, first)
            )
            problem = f"{this} is the same series as {other}"
            remedy = "drop one of them, or correct what wrote the file"
            raise BadInputError.at(self._raw, "episode", problem, remedy)
