"""The journal of the CA: what was done, by whom, when, and whether the coordinator knows.

`fleet init`, `enroll` and `revoke` work on files, also without a coordinator; each adds an entry,
which is what the coordinator is told. It reads the entries where it has the CA, or is told of them
by a later command; by its id an entry counts once.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError

from broker.errors import ConfigError
from broker.pki import keyfiles
from broker.pki.ca import Authority
from broker.protocol.messages import AskIdentity

FILE_NAME: Final = "journal.json"
MAX_ENTRIES: Final = 1000
MAX_BYTES: Final = 4 * 1024 * 1024


class Journal(BaseModel):
    """The entries, oldest first, and the ids of those that the coordinator knows."""

    version: int = 1
    entries: tuple[AskIdentity, ...] = ()
    told: frozenset[str] = frozenset()

    def untold(self) -> list[AskIdentity]:
        """Return what the coordinator does not know."""
        return [one for one in self.entries if one.id not in self.told]


def read(folder: Path) -> Journal:
    """Return the journal of the CA in `folder`. Raises `ConfigError` or OSError."""
    path = folder / FILE_NAME
    if not path.exists():
        return Journal()
    try:
        return Journal.model_validate_json(keyfiles.read(path, MAX_BYTES))
    except ValidationError:
        raise ConfigError(f"{path}: is damaged; move it away") from None


def add(authority: Authority, entry: AskIdentity) -> None:
    """Append an entry; of many the newest stay. Raises `ConfigError` or OSError."""
    with authority.locked():
        found = read(authority.folder)
        entries = (*found.entries, entry)[-MAX_ENTRIES:]
        told = found.told & {one.id for one in entries}
        _write(authority.folder, Journal(entries=entries, told=told))


def mark_told(authority: Authority, ids: Iterable[str]) -> None:
    """Note which entries the coordinator knows. Raises `ConfigError` or OSError."""
    with authority.locked():
        found = read(authority.folder)
        _write(authority.folder, Journal(entries=found.entries, told=found.told | {*ids}))


def _write(folder: Path, journal: Journal) -> None:
    text = journal.model_dump_json(indent=1, exclude_none=True)
    keyfiles.write(folder / FILE_NAME, text.encode() + b"\n")
