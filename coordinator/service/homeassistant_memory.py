"""What the coordinator's face in Home Assistant finds at its next start."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from broker.clock import Randomness
from broker.protocol.topics import Topics
from broker.system.files import RealDisk, write_atomically
from coordinator import __version__
from coordinator.faces.face import Face
from coordinator.faces.homeassistant import Farewell, HomeAssistant
from coordinator.service.settings import HomeAssistantSettings

log = logging.getLogger("fleet.coordinator")

FILE_NAME: Final = "homeassistant.json"


class HomeMemory:
    """A file in the coordinator's folder, as long as Home Assistant shows the fleet."""

    def __init__(self, state: Path) -> None:
        """`state` is the coordinator's folder."""
        self._path = state / FILE_NAME

    def face(
        self, home: HomeAssistantSettings, topics: Topics, rng: Randomness, *, commands: bool
    ) -> Face | None:
        """Return what shows the fleet in Home Assistant, or removes it from there."""
        kept = self._path.read_bytes() if self._path.exists() else None
        try:
            if home.enabled:
                return HomeAssistant(topics, rng, __version__, kept, commands=commands)
            return None if kept is None else Farewell(topics, kept)
        except ValueError as error:
            log.error("%s: %s; its meters start at zero", self._path, error)
            if not home.enabled:
                return None
            return HomeAssistant(topics, rng, __version__, None, commands=commands)

    def keep(self, memory: bytes) -> None:
        """Put on the disk what is to be found, nothing when that is empty."""
        disk = RealDisk()
        try:
            if memory:
                write_atomically(disk, self._path, memory)
            else:
                disk.unlink(self._path)
        except OSError as error:
            log.error("%s: %s; a restart will find older readings", self._path, error.strerror)
