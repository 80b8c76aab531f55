"""How this process's allocator treats what is freed."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

KEPT_BYTES: Final = 8 * 1024 * 1024
LARGE_BYTES: Final = 4 * 1024 * 1024
# <malloc.h> of the GNU C library
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def keep_freed_memory() -> None:
    """Have the C library keep some memory that was freed for what is allocated next.

    As it is, glibc gives every large buffer back to the system, and has it mapped and zeroed anew
    for the next chunk of an artifact: that takes longer than to copy the chunk. Elsewhere this
    does nothing.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
