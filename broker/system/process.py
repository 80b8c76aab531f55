"""How a program is told to end, and ends in time."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Final

_SWITCH_S: Final = 0.001
_NEW_OBJECTS: Final = 10_000  # before garbage is searched for
# mallopt(3) of glibc
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_KEPT_BYTES: Final = 8 * 1024 * 1024
_LARGE_BYTES: Final = 4 * 1024 * 1024  # more than any message


def tune() -> None:
    """Set the interpreter up for many messages; call it before there are threads.

    A thread that reads a socket gives the interpreter up at every call of the system. At the usual
    5 ms until it gets it back, a busy program would hear a hundred messages a second. By default
    glibc maps and zeroes memory anew for each chunk of an artifact, which costs more than all else
    that is done with it; it is to keep what is freed. What is loaded already stays, so the search
    for garbage leaves it out.
    """
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_ARENA_MAX, 1)


def on_signals(actions: Mapping[str, Callable[[], object]]) -> None:
    """Carry out an action for each signal by its name, on a thread of its own.

    A Python handler runs in the main thread, and only when that is not blocked: a signal that comes
    right before it blocks would wait as long as it. The byte on the pipe does not.
    """
    came, note = socket.socketpair()  # on Windows `set_wakeup_fd` takes nothing else
    note.setblocking(False)
    numbers = signal.Signals.__members__
    by_number = {int(numbers[name]): action for name, action in actions.items() if name in numbers}

    def serve() -> None:
        with note:
            while True:
                by_number.get(came.recv(1)[0], lambda: None)()

    for number in by_number:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(note.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=serve, name="fleet-signals", daemon=True).start()


def end_in_time(end_s: float, log: logging.Logger) -> None:
    """End this program `end_s` from now even if a thread hangs in a disk."""

    def give_up() -> None:
        log.error("a disk has not answered for %g s: ending without it", end_s)
        logging.shutdown()
        os._exit(1)

    timer = threading.Timer(end_s, give_up)
    timer.daemon = True
    timer.start()


# A child process that ends with its parent: the parent holds the child's standard input open.
#
# Works on every system, and however the parent ends; nothing is ever written to the pipe.

VARIABLE: Final = "FLEET_ENDS_WITH_STDIN"


def end_with_parent(on_end: Callable[[], object]) -> None:
    """Call `on_end` when standard input closes, if `VARIABLE` asks for it."""
    if os.environ.get(VARIABLE) == "1":
        threading.Thread(target=_watch, args=(on_end,), name="fleet-parent", daemon=True).start()


def _watch(on_end: Callable[[], object]) -> None:
    # Not by `sys.stdin`: a thread that holds its lock at the end of the interpreter is fatal.
    with contextlib.suppress(OSError, ValueError):
        while os.read(sys.stdin.fileno(), 1):
            pass
    on_end()


def nobody_reads() -> None:
    """Redirect standard output to nowhere: its reader has gone, as after `| head -1`."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
