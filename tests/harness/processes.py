"""Other people's processes, as tests look at them."""

from __future__ import annotations

import contextlib
from typing import Final

import psutil

# A program's part that starts a daemon, as they do it: by two forks, in a session of its own,
# without any of the starter's environment and files. It prints the daemon's process id.
DAEMON: Final = """
import os, sys
ours, theirs = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(theirs, str(os.getpid()).encode())
        for number in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], {})
    os._exit(0)
os.wait()
print("daemon", os.read(ours, 20).decode(), flush=True)
"""


def is_over(process: psutil.Process | int) -> bool:
    """Whether it has ended, reaped or not."""
    try:
        process = psutil.Process(process) if isinstance(process, int) else process
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def end(pid: int) -> None:
    """End a process, if there is one."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).kill()
