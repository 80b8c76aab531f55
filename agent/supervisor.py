"""Trainers as child processes: one process group each, output read line by line, TERM then KILL.

What runs is written to the work folder by process id and start time, so that an agent which starts
again finds and ends what it left behind, by identity and never by name.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import psutil

from agent.lines import MAX_LINE_CHARS

log = logging.getLogger("fleet.agent")

IDENTITY_FILE: Final = "process.json"
LOG_FILE: Final = "trainer.log"
MAX_LOG_BYTES: Final = 8 * 1024 * 1024
ORPHAN_GRACE_S: Final = 3.0
_CREATED_SLACK_S: Final = 1.0
_POLL_S: Final = 0.05


class Trainer:
    """One trainer's process. `on_line` and `on_exit` are called on a thread of its own."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        work: Path,
        on_line: Callable[[str], None],
        on_exit: Callable[[int], None],
    ) -> None:
        """Start it in its work folder. Raises OSError when it cannot be started."""
        (work / "out").mkdir(parents=True, exist_ok=True)
        self._work = work
        self._on_line = on_line
        self._on_exit = on_exit
        self._process = subprocess.Popen(
            list(command),
            cwd=work,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=os.name == "posix",
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        self.pid = self._process.pid
        _write_identity(work, self.pid)
        self._thread = threading.Thread(target=self._read, name="fleet-trainer", daemon=True)
        self._thread.start()

    def send_signal(self, *, kill: bool) -> None:
        """Ask the whole process group to end, or end it."""
        _signal_group(self.pid, kill=kill)

    def wait(self, timeout_s: float) -> None:
        """Wait for the end of the process and of its output."""
        self._thread.join(timeout_s)

    def _read(self) -> None:
        output = self._process.stdout
        if output is not None:
            with output, (self._work / LOG_FILE).open("wb") as file:
                self._copy_lines(output, file)
        if hasattr(os, "waitid"):
            # Not reaped yet, so that its id cannot be anybody else's when its group is ended.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        _signal_group(self.pid, kill=True)  # what the trainer has started itself goes with it
        self._on_exit(self._process.wait())

    def _copy_lines(self, output: IO[bytes], file: IO[bytes]) -> None:
        written_bytes = 0
        while line := output.readline(MAX_LINE_CHARS):
            if written_bytes < MAX_LOG_BYTES:
                file.write(line)
                file.flush()
                written_bytes += len(line)
            self._on_line(line.decode("utf-8", "replace").rstrip("\r\n"))


def end_orphan(work: Path) -> bool:
    """End the trainer that an earlier agent left in a work folder; tell whether there was one."""
    try:
        identity = json.loads((work / IDENTITY_FILE).read_text("utf-8"))
        pid, created_s = int(identity["pid"]), float(identity["created_s"])
        process = psutil.Process(pid)
        if abs(process.create_time() - created_s) > _CREATED_SLACK_S or _is_over(process):
            return False  # the id was given to another process since, or it has ended
        for kill in (False, True):
            _signal_group(pid, kill=kill)
            if _has_ended(process, ORPHAN_GRACE_S):
                break
    except (OSError, ValueError, KeyError, TypeError, psutil.Error):
        return False
    log.info("ended process %d, which an earlier agent left behind", pid)
    return True


def _has_ended(process: psutil.Process, timeout_s: float) -> bool:
    """Wait for the end of a process that is not our child; nobody may have reaped it yet."""
    deadline_s = time.monotonic() + timeout_s
    while not _is_over(process):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def _is_over(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _write_identity(work: Path, pid: int) -> None:
    with contextlib.suppress(psutil.Error):
        created_s = psutil.Process(pid).create_time()
        text = json.dumps({"pid": pid, "created_s": created_s})
        (work / IDENTITY_FILE).write_text(text, "utf-8")


def _signal_group(pid: int, *, kill: bool) -> None:
    with contextlib.suppress(OSError, psutil.Error):
        if os.name == "posix":
            os.killpg(pid, signal.SIGKILL if kill else signal.SIGTERM)
            return
        process = psutil.Process(pid)
        for child in [*process.children(recursive=True), process]:
            child.kill() if kill else child.terminate()
