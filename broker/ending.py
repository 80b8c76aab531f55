"""How a program is told to end, and that its end has a deadline."""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
from collections.abc import Callable, Mapping


def on_signals(actions: Mapping[str, Callable[[], object]]) -> None:
    """Carry out an action for each signal by its name, on a thread of its own.

    A handler runs in the middle of whatever the main thread does. What it put into a mailbox after
    that thread had looked, and before it waits, would wake nobody. Names that this system does not
    have are left out.
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
    """See to it that a disk which hangs does not keep this program from ending, `end_s` from now.

    Its threads wait in the system, and the interpreter for them.
    """

    def give_up() -> None:
        log.error("a disk has not answered for %g s: ending without it", end_s)
        logging.shutdown()
        os._exit(1)

    timer = threading.Timer(end_s, give_up)
    timer.daemon = True
    timer.start()
