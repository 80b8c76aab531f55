"""What a bundle may hold, for those who make it and who unpack it; and how its names are stored.

The names in a bundle are those that the trainer gave. What only some systems cannot store is
escaped where it is unpacked on one of them, a byte of UTF-8 as `%` and two hex digits: decoding
that, as `urllib.parse.unquote` does, gives the trainer's name again.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from broker.file_names import is_device

MAX_DEPTH: Final = 16
MAX_FILE_BYTES: Final = 8 * 1024**3 - 1  # what a header of ustar has digits for
_NAME_BYTES: Final = 100  # what it has for a name, and for the folders above it
_FOLDERS_BYTES: Final = 155
_STORED_CHARS: Final = 255  # of one part, on Windows
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_ESCAPE: Final = re.compile(r"%(?=[0-9A-Fa-f]{2})")  # what would be taken for an escape
_ESCAPE_ON_WINDOWS: Final = re.compile(r"%(?=[0-9A-Fa-f]{2})|[<>:\"|?*\\]|[. ]\Z")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a bundle may hold."""

    entries: int = 10_000
    total_bytes: int = 64 * 1024**3


LIMITS: Final = Limits()


class Contents:
    """Judges the files of one bundle, one after the other."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        """Nothing is in it yet."""
        self._limits = limits
        self._files: set[str] = set()
        self._folders: set[str] = set()
        self._total_bytes = 0

    def objection(self, name: str, size_bytes: int) -> str:
        """Add a file by its name with `/`; return why it is not allowed, or an empty string."""
        said = _of_name(name) or self._of_others(name) or self._of_size(size_bytes)
        return f"{name[:80]!r} {said}" if said else ""

    def _of_others(self, name: str) -> str:
        above = {name[:at] for at, one in enumerate(name) if one == "/"}
        if name in self._files:
            return "is in the bundle twice"
        if name in self._folders or not above.isdisjoint(self._files):
            return "is in the bundle as a file and as a folder"
        if len(self._files) >= self._limits.entries:
            return f"is one too many; a bundle holds at most {self._limits.entries:,} files"
        self._files.add(name)
        self._folders |= above
        return ""

    def _of_size(self, size_bytes: int) -> str:
        self._total_bytes += size_bytes
        if size_bytes > MAX_FILE_BYTES:
            return f"has {size_bytes:,} bytes; a file in a bundle has at most {MAX_FILE_BYTES:,}"
        if self._total_bytes > self._limits.total_bytes:
            most_mib = self._limits.total_bytes // 1024**2
            return f"is too much; all files of a bundle have at most {most_mib:,} MiB"
        return ""


@dataclass(frozen=True, slots=True)
class System:
    """What a folder cannot store.

    `windows`: names that Windows understands otherwise; `folds`: two names that differ by upper and
    lower case, or by how their accents are composed, and in nothing else.
    """

    windows: bool = False
    folds: bool = False


class StoredNames:
    """The names under which one bundle's files are stored in a folder."""

    def __init__(self, system: System) -> None:
        """Nothing is stored yet."""
        self._system = system
        self._stored: dict[tuple[str, str], str] = {}  # by the folder as stored, and the part
        self._taken: set[str] = set()

    def of(self, name: str) -> str:
        """Return how a name is stored: as it is, but for what the folder cannot store."""
        if self._system == System():
            return name
        path = ""
        for part in name.split("/"):
            key = (path, part)
            if key not in self._stored:
                self._stored[key] = self._free(path, part)
            path = self._stored[key]
        return path

    def _free(self, above: str, part: str) -> str:
        """Escape as little as can be, from the front."""
        prefix = f"{above}/" if above else ""
        for one in _escaped(part, windows=self._system.windows):
            path = prefix + one
            key = _folded(path) if self._system.folds else path
            if key not in self._taken and not (self._system.windows and is_device(one)):
                self._taken.add(key)
                return path
        raise AssertionError("what is escaped wholly is nobody else's name")


def _escaped(part: str, *, windows: bool) -> Iterator[str]:
    pattern = _ESCAPE_ON_WINDOWS if windows else _ESCAPE
    needed = {found.start() for found in pattern.finditer(part)}
    for front in range(len(part) + 1):
        yield "".join(
            _percent(one) if at < front or at in needed else one for at, one in enumerate(part)
        )


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())


def _folded(path: str) -> str:
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold())


def _of_name(name: str) -> str:
    parts = name.split("/")
    if not {"", ".", ".."}.isdisjoint(parts) or _UNSAFE.search(name):
        return "is no plain relative name of text"
    if len(parts) > MAX_DEPTH:
        return f"is {len(parts)} levels deep; a bundle holds at most {MAX_DEPTH}"
    if any(len(next(_escaped(part, windows=True))) > _STORED_CHARS for part in parts):
        return f"has more than {_STORED_CHARS} characters where Windows stores it escaped"
    if not _has_room(name.encode()):
        most = f"at most {_NAME_BYTES} bytes, and {_FOLDERS_BYTES} for the folders above it"
        return f"is too long; a name in a bundle has {most}"
    return ""


def _has_room(name: bytes) -> bool:
    """Tell whether a header of ustar has room for a name: it is cut at one of its `/`."""
    return len(name) <= _NAME_BYTES or any(
        byte == ord("/") and at <= _FOLDERS_BYTES and len(name) - at - 1 <= _NAME_BYTES
        for at, byte in enumerate(name)
    )
