"""How a program is told to end, and ends in time."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Final


def on_signals(actions: Mapping[str, Callable[[], object]]) -> None:
    """Carry out an action for each signal by its name, on a thread of its own.

    A handler that ran in the main thread could put an event into the mailbox unnoticed.
    """
    came: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()  # its `put` is re-entrant

    def serve() -> None:
        while True:
            came.get()()

    threading.Thread(target=serve, name="fleet-signals", daemon=True).start()
    for name, action in actions.items():
        number = signal.Signals.__members__.get(name)
        if number is not None:
            signal.signal(number, lambda *_, action=action: came.put(action))


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
