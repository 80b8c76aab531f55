"""Names of files that every system can bear, and that mean the same on each."""

from __future__ import annotations

import re
from typing import Final

_MOST_CHARS: Final = 200
_NOT_PLAIN: Final = re.compile(r"[\x00-\x1f\x7f<>:\"|?*\\/]")
# Windows takes these for devices, whatever comes after a dot.
_DEVICE: Final = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3])(\..*)?",
    re.IGNORECASE | re.DOTALL,
)


def is_plain(name: str) -> bool:
    """Tell whether `name` can be the name of one file or folder on every system."""
    return not objection(name)


def objection(name: str) -> str:
    """Return why `name` cannot be the name of one file or folder on every system, or nothing."""
    if found := _NOT_PLAIN.search(name):
        return f"has {found[0]!r}"
    if not 0 < len(name) <= _MOST_CHARS:
        return f"has not 1 to {_MOST_CHARS} characters"
    if name[-1] in ". ":
        return f"ends with {name[-1]!r}"
    if not name.isprintable():
        return "has a character that cannot be seen"
    return "is a device on Windows" if is_device(name) else ""


def is_device(name: str) -> bool:
    """Tell whether Windows takes `name` for a device (`aux.txt`), in whatever folder."""
    return bool(_DEVICE.fullmatch(name))
