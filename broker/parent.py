"""A child process that ends with its parent: the parent holds the child's standard input open.

Works on every system, and however the parent ends; nothing is ever written to the pipe.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Final

VARIABLE: Final = "FLEET_ENDS_WITH_STDIN"


def end_with_parent(on_end: Callable[[], object]) -> None:
    """Call `on_end`, on a thread of its own, when standard input closes; if asked to at all."""
    if os.environ.get(VARIABLE) == "1":
        threading.Thread(target=_watch, args=(on_end,), name="fleet-parent", daemon=True).start()


def _watch(on_end: Callable[[], object]) -> None:
    # Not by `sys.stdin`: a thread that holds its lock at the end of the interpreter is fatal.
    with contextlib.suppress(OSError, ValueError):
        while os.read(sys.stdin.fileno(), 1):
            pass
    on_end()
