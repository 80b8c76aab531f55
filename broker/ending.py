"""The end of a program has a deadline."""

from __future__ import annotations

import logging
import os
import threading


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
