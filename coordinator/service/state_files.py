"""Small files in the state folder: installation id, receipt key, Home Assistant's meters."""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

from broker.clock import Randomness
from broker.errors import ConfigError
from broker.pki import keyfiles
from broker.protocol.link_events import Outgoing
from broker.protocol.topics import Topics
from broker.system.files import RealDisk, make_wanted, write_atomically
from coordinator import __version__
from coordinator.faces.homeassistant import HomeAssistant, farewell

log = logging.getLogger("fleet.coordinator")

INSTALLATION: Final = "installation.json"
RECEIPT_KEY: Final = "receipt.key"
HOMEASSISTANT: Final = "homeassistant.json"
KEY_BYTES: Final = 32
_MOST_BYTES: Final = 4096  # to say that it is damaged, however long it is


def installation_id(state: Path, machine: str, new_id: Callable[[], str]) -> str:
    """Return the id of the installation in `state`, made at the first start there.

    The id holds for this `machine`, path and folder: a copy of the folder makes one of its own. A
    file that cannot be understood is replaced: a new id costs a wait. Raises OSError.
    """
    make_wanted(state)
    folder = state.resolve()
    place = hashlib.sha256(f"{machine}\n{folder}\n{folder.stat().st_ino}".encode()).hexdigest()
    path = state / INSTALLATION
    try:
        kept = json.loads(path.read_bytes())
        if kept["place"] == place and isinstance(kept["id"], str):
            return str(kept["id"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass
    made = new_id()
    disk = RealDisk()
    write_atomically(disk, path, json.dumps({"id": made, "place": place}).encode())
    disk.sync_folder(state)
    return made


def load_key(state: Path) -> bytes:
    """Return the key of `coordinator.core.receipts`, made at the first start.

    Its hash follows it in the file. Raises `ConfigError` when the file is damaged or others may
    read it, and OSError when it cannot be written.
    """
    path = state / RECEIPT_KEY
    if path.exists():
        keyfiles.check_secret(path)
        kept = keyfiles.read(path, _MOST_BYTES)
        key = kept[:KEY_BYTES]
        if kept != key + hashlib.sha256(key).digest():
            raise ConfigError(
                f"{path}: is damaged; put a copy of it back. Without one delete it: a new one is "
                "made, and of what hosts are at, only what the ledger knows is taken"
            )
        return key
    key = secrets.token_bytes(KEY_BYTES)
    keyfiles.write(path, key + hashlib.sha256(key).digest())
    return key


class HomeMemory:
    """What Home Assistant's face finds at its next start, as long as it shows the fleet."""

    def __init__(self, state: Path) -> None:
        """`state` is the coordinator's folder."""
        self._path = state / HOMEASSISTANT
        self._kept = self._path.read_bytes() if self._path.exists() else None

    def face(self, topics: Topics, rng: Randomness, *, commands: bool) -> HomeAssistant:
        """Return what shows the fleet in Home Assistant."""
        try:
            return HomeAssistant(topics, rng, __version__, self._kept, self.keep, commands=commands)
        except ValueError as error:
            log.error("%s: %s; its meters start at zero", self._path, error)
            return HomeAssistant(topics, rng, __version__, None, self.keep, commands=commands)

    def farewell(self, topics: Topics) -> list[Outgoing]:
        """Return what removes a fleet from there that was shown and is no longer."""
        try:
            return [] if self._kept is None else farewell(topics, self._kept)
        except ValueError as error:
            log.error("%s: %s", self._path, error)
            return []

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
