"""What the agent says of itself to others on this machine: a small file in its state folder.

Nobody can try the agent's connection beside it: a broker that takes its clients' names from
certificates would throw the agent off. The file is written when there is something else to say, not
at each try, and a disk that refuses it does no harm.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from broker.clock import Now
from broker.protocol.link_events import Connected, Disconnected
from broker.system.files import RealDisk, write_atomically

NAME: Final = "connection.json"
MAX_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Word:
    """How the connection is, and has been `since` (RFC 3339): there, or what has ended it.

    Neither: it is being made for the first time. `identity` is the folder of the certificate and
    `data` that of the prepared data, as text, and empty without one.
    """

    host: str = ""
    identity: str = ""
    data: str = ""
    since: str = ""
    connected: bool = False
    lost: Disconnected | None = None


_WORD: Final = TypeAdapter(Word)


class Contact:
    """Writes the word of one agent, which has the lock of `state`."""

    def __init__(
        self, state: Path, now: Now, host: str, identity: Path | None, data: Path | None
    ) -> None:
        """Replace the word of an earlier agent."""
        self._path = state / NAME
        self._said = Word(host, _text(identity), _text(data), now.text())
        self._write()

    def tell(self, now: Now, event: Connected | Disconnected) -> None:
        """Write how the connection is now, if that has changed."""
        said, connected = self._said, isinstance(event, Connected)
        since = said.since if said.connected is connected else now.text()
        lost = None if isinstance(event, Connected) else event
        self._said = replace(said, since=since, connected=connected, lost=lost)
        if self._said != said:
            self._write()

    def _write(self) -> None:
        data = _WORD.dump_json(self._said)
        try:
            write_atomically(RealDisk(), self._path, data, durable=False)
        except OSError:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)


def _text(folder: Path | None) -> str:
    return "" if folder is None else str(folder.absolute())


def read(state: Path) -> Word | None:
    """Return the word of the agent of a state folder; none when it has left none.

    It is of the agent that runs there if one does (`broker.system.files.holder`). Raises OSError
    when it may not be read.
    """
    try:
        with (state / NAME).open("rb") as file:
            word = _WORD.validate_json(file.read(MAX_BYTES))
        datetime.fromisoformat(word.since)
    except (FileNotFoundError, ValueError):  # `ValidationError` is one
        return None
    return word
