"""How this process's allocator treats what is freed."""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Final

KEPT_BYTES: Final = 8 * 1024 * 1024
YOUNG: Final = 10_000  # objects that are made before Python looks which of them are garbage
LARGE_BYTES: Final = 4 * 1024 * 1024
# <malloc.h> of the GNU C library
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8


def keep_freed_memory() -> None:
    """Have the C library keep some memory that was freed for what is allocated next.

    As it is, glibc gives every large buffer back to the system, and has it mapped and zeroed anew
    for the next chunk of an artifact: that takes longer than to copy the chunk. And it gives each
    thread an arena of its own, for which ours, of which one runs at a time, have no use. Call it
    before there are threads. Elsewhere this does nothing.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_ARENA_MAX, 1)


def give_back_memory() -> None:
    """Give what was freed back to the system: a start needs more than what comes after it."""
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def spare_what_is_loaded() -> None:
    """Exclude all present objects from garbage collection, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
