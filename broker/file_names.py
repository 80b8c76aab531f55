"""Names of files that every system can bear, and that mean the same on each."""

from __future__ import annotations

import re
from typing import Final

_PLAIN: Final = re.compile(r"[^\x00-\x1f\x7f<>:\"|?*\\/]{1,200}")
# Windows takes these for devices, whatever comes after a dot.
_DEVICE: Final = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3])(\..*)?",
    re.IGNORECASE | re.DOTALL,
)


def is_plain(name: str) -> bool:
    """Tell whether `name` can be the name of one file or folder on every system."""
    return bool(_PLAIN.fullmatch(name)) and name[-1] not in ". " and not is_device(name)


def is_device(name: str) -> bool:
    """Tell whether Windows takes `name` for a device (`aux.txt`), in whatever folder."""
    return bool(_DEVICE.fullmatch(name))
