"""The end of the coordinator has a deadline."""

from __future__ import annotations

import logging
import os
import threading
from typing import Final

log = logging.getLogger("fleet.coordinator")

END_S: Final = 20.0  # a service manager waits for longer


def end_in_time() -> None:
    """See to it that a disk which hangs does not keep this program from ending.

    Its threads wait in the system, and the interpreter for them. What is durable is in the ledger;
    of what is not yet, everybody tells again.
    """
    timer = threading.Timer(END_S, _give_up)
    timer.daemon = True
    timer.start()


def _give_up() -> None:
    log.error("a disk has not answered for %g s: ending without it", END_S)
    logging.shutdown()
    os._exit(1)
