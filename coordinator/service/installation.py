"""Which installation of a coordinator this is: a random id, in a file beside the ledger.

The id holds at the place for which it was made: this machine, this path, this very folder. A copy
of the state folder lies elsewhere, so it makes an id of its own at its first start.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from broker.system.files import RealDisk, make_wanted, write_atomically

FILE_NAME: Final = "installation.json"


def installation_id(state: Path, machine: str, new_id: Callable[[], str]) -> str:
    """Return the id of the installation in `state`, made at the first start there.

    `machine` tells this machine from others. A file that cannot be understood is replaced: all that
    a new id costs is a wait. Raises OSError when the file can be neither read nor written.
    """
    make_wanted(state)
    path, place = state / FILE_NAME, _place(state, machine)
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


def _place(state: Path, machine: str) -> str:
    folder = state.resolve()
    return hashlib.sha256(f"{machine}\n{folder}\n{folder.stat().st_ino}".encode()).hexdigest()
