"""How the C library hands out memory while a network learns."""

from __future__ import annotations

import ctypes
from typing import Final

# <malloc.h> of glibc; mallopt(3).
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_MAX: Final = -4
_NEVER: Final = 2**31 - 1


def keep_memory() -> None:
    """Have memory that is freed stay with the process, where the C library can be told so.

    Every step frees and takes the same tensors. glibc gives large ones back to the system and asks
    for them again, each page to be cleared anew: a third of the time of an LSTM's training.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return  # Windows, macOS, musl: nothing to be told
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, _NEVER)
