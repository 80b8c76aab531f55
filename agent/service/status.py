"""Word of the agent's connection: a small file in its state folder, for who asks on this machine.

Nobody can try that connection beside it: a broker that takes its clients' names from certificates
would throw the agent off. The file is written when there is something else to say, not at each try,
and costs nothing but itself: what cannot be written is not there.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from broker.clock import Now
from broker.system.files import RealDisk, write_atomically

NAME: Final = "connection.json"
MAX_BYTES: Final = 8 * 1024


@dataclass(frozen=True, slots=True)
class Word:
    """How the connection is, and has been `since` (RFC 3339): there, or `why` it is not.

    Neither: it is being made for the first time. `denied`: the broker denies a subscription.
    `identity` is the folder of the certificate, as a text, and empty without one.
    """

    identity: str = ""
    since: str = ""
    connected: bool = False
    why: str = ""
    denied: bool = False


class Contact:
    """Keeps the word of one agent, which has the lock of `state`."""

    def __init__(self, state: Path, identity: Path | None, now: Now) -> None:
        """Begin: what an earlier agent has said holds no more."""
        self._path = state / NAME
        self._identity = "" if identity is None else str(identity.absolute())
        self._said: Word | None = None
        self.tell(now)

    def tell(
        self, now: Now, *, connected: bool = False, why: str = "", denied: bool = False
    ) -> None:
        """Say how it is now, unless that is said already."""
        said = self._said
        since = now.text() if said is None or said.connected is not connected else said.since
        word = Word(self._identity, since, connected, why, denied)
        if word == said:
            return
        self._said = word
        data = json.dumps(asdict(word)).encode()
        try:
            write_atomically(RealDisk(), self._path, data, durable=False)
        except OSError:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)


def read(state: Path) -> Word | None:
    """Return the word of the agent of a state folder; none when it has left none.

    It is of the agent that runs there if one does (`broker.system.files.holder`). Raises OSError
    when it may not be read.
    """
    try:
        with (state / NAME).open("rb") as file:
            word = Word(**json.loads(file.read(MAX_BYTES)))
        datetime.fromisoformat(word.since)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return word
