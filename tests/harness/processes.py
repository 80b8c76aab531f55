"""Other people's processes, as tests look at them."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
from pathlib import Path
from typing import Final

import psutil

from agent.process.supervisor import Starter, Trainer
from tests.harness.waiting import DEADLINE_S

SLEEP: Final = "import time; time.sleep(600)"

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


class Watched:
    """A trainer whose lines and end a test can wait for."""

    def __init__(
        self, starter: Starter, work: Path, code: str = "", command: list[str] | None = None
    ) -> None:
        self.lines: queue.Queue[str] = queue.Queue()
        self.codes: queue.Queue[int] = queue.Queue()
        if command is None:
            work.mkdir(parents=True, exist_ok=True)
            program = work / "program.py"
            program.write_text(code, "utf-8")
            command = [sys.executable, str(program)]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        environment.pop("PYTEST_CURRENT_TEST", None)
        self.trainer = Trainer(command, environment, work, self.lines.put, self.codes.put, starter)

    def line(self) -> str:
        return self.lines.get(timeout=DEADLINE_S)

    def code(self) -> int:
        return self.codes.get(timeout=DEADLINE_S)
