"""Other people's processes, as tests look at them."""

from __future__ import annotations

import psutil


def is_over(process: psutil.Process) -> bool:
    """Whether it has ended, reaped or not."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
