"""The journal of the CA: what was done, by whom, when, and whether the coordinator knows.

`fleet init`, `enroll` and `revoke` work on files, also without a coordinator; each adds an entry.
The coordinator reads the entries where it has the CA, or is told of them by a later command; an
entry has an id, so that it counts once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from broker.errors import ConfigError
from broker.pki import keyfiles
from broker.pki.ca import Authority
from broker.protocol.messages import AskIdentity

FILE_NAME: Final = "journal.json"
MAX_ENTRIES: Final = 1000
MAX_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """One action (init, enroll or revoke) on the certificate of `name`; `at_s` since 1970."""

    id: str
    at_s: float
    who: str
    action: str
    name: str
    what: str = ""
    told: bool = False


def read(folder: Path) -> list[Entry]:
    """Return the entries of the CA in `folder`, oldest first."""
    path = folder / FILE_NAME
    if not path.exists():
        return []
    try:
        rows = json.loads(keyfiles.read(path, MAX_BYTES))["entries"]
        return [Entry(**row) for row in rows]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(f"{path}: is damaged; move it away") from None


def add(authority: Authority, entry: Entry) -> None:
    """Append an entry; of many the newest stay. Raises `ConfigError` or OSError."""
    with authority.locked():
        _write(authority.folder, [*read(authority.folder), entry][-MAX_ENTRIES:])


def mark_told(authority: Authority, ids: Iterable[str]) -> None:
    """Note which entries the coordinator knows. Raises `ConfigError` or OSError."""
    told = set(ids)
    with authority.locked():
        entries = read(authority.folder)
        _write(authority.folder, [replace(one, told=one.told or one.id in told) for one in entries])


def _write(folder: Path, entries: Sequence[Entry]) -> None:
    text = json.dumps({"version": 1, "entries": [asdict(one) for one in entries]}, indent=1)
    keyfiles.write(folder / FILE_NAME, text.encode() + b"\n")


def request_of(entry: Entry) -> AskIdentity:
    """Return what the coordinator is told of an entry. Raises `ConfigError` for a strange one."""
    try:
        return AskIdentity.model_validate(
            {
                "id": entry.id, "action": entry.action, "name": entry.name, "who": entry.who,
                "what": entry.what, "made_at": entry.at_s,
            }
        )  # fmt: skip
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise ConfigError(f"{FILE_NAME}: {where} of entry {entry.id!r} is none") from None
