"""Trainers as child processes: one process group each, output read line by line, TERM then KILL.

No trainer outlives its agent, however that ends: on POSIX a keeper (`agent/process/keeper.py`) ends
all of it, on Windows a job object does. What both may miss, the next agent ends
(`agent.process.orphans`).
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.process.orphans import MARK, end_marked, mark_of
from broker.errors import plain
from broker.protocol.loglines import MAX_LINE_CHARS

if sys.platform == "win32":
    from agent.process.job_object import Starter
else:
    from agent.process.forkserver import ForkServer as Starter

__all__ = ["Starter", "Trainer"]

log = logging.getLogger("fleet.agent")

LOG_FILE: Final = "trainer.log"
MAX_LOG_BYTES: Final = 8 * 1024 * 1024
DRAIN_S: Final = 5.0  # for the rest of the output, when nobody should be there to write more


class Trainer:
    """One trainer's process. `on_line` and `on_exit` are called on threads of its own.

    `on_exit` is called once, after the last `on_line`; its code is negative for a signal. `pid` is
    the id of the process group, `trainer_pid` that of the trainer.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        work: Path,
        on_line: Callable[[str], None],
        on_exit: Callable[[int], None],
        starter: Starter,
        modules: Sequence[str] = (),
        folder: Path | None = None,
    ) -> None:
        """Start it in its work folder, or in `folder`. Raises OSError when it cannot be started.

        `modules` are those that a Python program wants to find imported, where that is possible.
        A command that does not exist ends at once, with the code 127 and a line that says so.
        """
        (work / "out").mkdir(parents=True, exist_ok=True)
        self._work = work
        self._on_line = on_line
        self._on_exit = on_exit
        self._lines = 0
        self._is_over = False
        self._has_ended = False
        self._in_callback = threading.Lock()
        self._ending = threading.Lock()
        marked = {MARK: mark_of(work), **environment}
        self._started = starter.start(command, marked, folder or work, modules)
        self.pid, self.trainer_pid = self._started.pid, self._started.trainer_pid
        self._reader = threading.Thread(target=self._read, name="fleet-output", daemon=True)
        self._reader.start()
        self._watcher = threading.Thread(target=self._watch, name="fleet-trainer", daemon=True)
        self._watcher.start()

    def send_signal(self, *, kill: bool) -> None:
        """Ask the process group to end, or end it and who has left it; nothing once all has."""
        with self._ending:
            if self._has_ended:
                return
            if not kill:
                self._started.signal(signal.SIGTERM)
                return
            self._started.let_go()
            if sys.platform != "win32":  # one that is stopped is woken
                self._started.signal(signal.SIGCONT)

    def wait(self, timeout_s: float) -> None:
        """Wait for the end of the process and of its output."""
        self._watcher.join(timeout_s)

    def _watch(self) -> None:
        code = self._started.await_end()
        with self._ending:
            self._has_ended = True
            self._started.end_rest()
        if not self._started.has_left_nothing:
            self._end_strays()
        self._drain()
        with self._in_callback:
            self._is_over = True
        self._on_exit(code)

    def _end_strays(self) -> None:
        """End the trainer's processes that have left its group."""
        try:
            end_marked([self._work])
        except Exception:  # the slot is taken until the end is told
            log.exception("what a trainer may have left behind cannot be looked for")

    def _drain(self) -> None:
        """Wait for the end of the output, unless somebody holds it open and prints nothing."""
        while self._reader.is_alive():
            lines = self._lines
            self._reader.join(DRAIN_S)
            if lines == self._lines and not self._in_callback.locked():
                return

    def _read(self) -> None:
        kept = _BoundedLog(self._work / LOG_FILE)
        with self._started.output as output:
            while line := output.readline(MAX_LINE_CHARS):
                kept.write(line)
                with self._in_callback:
                    if self._is_over:
                        return
                    self._on_line(line.decode("utf-8", "replace").rstrip("\r\n"))
                self._lines += 1


class _BoundedLog:
    """The beginning of a trainer's output on disk; a disk that refuses it does no harm.

    Without output there is no file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mode = "wb"
        self._room_bytes = MAX_LOG_BYTES

    def write(self, line: bytes) -> None:
        """Keep a line while there is room."""
        if self._room_bytes <= 0:
            return
        try:
            with self._path.open(self._mode) as file:
                self._room_bytes -= file.write(line)
        except OSError as error:
            log.warning("%s: %s; the trainer goes on without it", LOG_FILE, plain(error))
            self._room_bytes = 0
        self._mode = "ab"
