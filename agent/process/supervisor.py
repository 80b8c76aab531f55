"""Trainers as child processes: one process group each, output read line by line, TERM then KILL.

No trainer outlives its agent, however that ends: on POSIX a keeper (`agent/process/keeper.py`) ends
all of it, on Windows a job object does. What both may miss, the next agent ends
(`agent.process.orphans`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, Protocol

from agent.core.output import MAX_LINE_CHARS
from agent.process.forkserver import LAUNCH, Kept, Nursery
from agent.process.orphans import MARK, end_marked, end_orphan, mark_of, record, signal_group
from broker.errors import plain
from broker.system import children

if sys.platform == "win32":
    import psutil

    from agent.process.job_object import CREATE_SUSPENDED, JobObject

__all__ = ["Trainer", "end_orphan"]

log = logging.getLogger("fleet.agent")

LOG_FILE: Final = "trainer.log"
MAX_LOG_BYTES: Final = 8 * 1024 * 1024
DRAIN_S: Final = 5.0  # for the rest of the output, when nobody should be there to write more


class Started(Protocol):
    """What was started: the leader of the trainer's group, and its output."""

    pid: int
    trainer_pid: int  # where a keeper does not tell that of its trainer: its own
    is_clean: bool  # whether it has ended, and it is known that nothing of the trainer is left

    @property
    def is_lost(self) -> bool:
        """Whether its id may be somebody else's by now."""
        ...

    @property
    def output(self) -> IO[bytes]:
        """What the trainer prints."""
        ...

    def await_end(self) -> None:
        """Wait for its end; its id stays its own."""
        ...

    def let_go(self) -> None:
        """Have all of it ended, as our own end does; `await_end` waits for that."""
        ...

    def reap(self) -> int:
        """Let its id be used again; return its exit code, negative for a signal."""
        ...


class Trainer:
    """One trainer's process. `on_line` and `on_exit` are called on threads of its own.

    `on_exit` is called once, after the last `on_line`; its code is negative for a signal. `pid` is
    the id of the process group, `trainer_pid` that of the trainer where that is known: with a
    nursery, and on Windows, where they are the same. Else it is that of the keeper, its parent.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        work: Path,
        on_line: Callable[[str], None],
        on_exit: Callable[[int], None],
        nursery: Nursery | None = None,
    ) -> None:
        """Start it in its work folder. Raises OSError when it cannot be started.

        A command that does not exist ends at once, with the code 127 and a line that says so. With
        a `nursery` (Linux alone) no interpreter has to be started for it first.
        """
        (work / "out").mkdir(parents=True, exist_ok=True)
        self._work = work
        self._on_line = on_line
        self._on_exit = on_exit
        self._lines = 0
        self._is_over = False
        self._is_reaped = False
        self._in_callback = threading.Lock()
        self._reaping = threading.Lock()
        marked = {**environment, MARK: mark_of(work)}
        if nursery is None:
            self._started = _start(list(command), marked, work)
        else:
            self._started = _kept(nursery, command, marked, work)
        self.pid, self.trainer_pid = self._started.pid, self._started.trainer_pid
        self._reader = threading.Thread(target=self._read, name="fleet-output", daemon=True)
        self._reader.start()
        self._watcher = threading.Thread(target=self._watch, name="fleet-trainer", daemon=True)
        self._watcher.start()

    def send_signal(self, *, kill: bool) -> None:
        """Ask the process group to end, or end it and who has left it; nothing once all has."""
        with self._reaping:
            if self._is_reaped:
                return
            if kill:
                self._started.let_go()
            if not self._started.is_lost:  # else the id may be another's
                signal_group(self.pid, "wake" if kill else "ask")

    def wait(self, timeout_s: float) -> None:
        """Wait for the end of the process and of its output."""
        self._watcher.join(timeout_s)

    def _watch(self) -> None:
        self._started.await_end()
        self._started.let_go()
        if not self._started.is_clean:
            if not self._started.is_lost:
                signal_group(self.pid, "end")  # its keeper was killed, or cannot take others in
            self._end_strays()
        self._drain()
        with self._reaping:
            code = self._started.reap()
            self._is_reaped = True
        with self._in_callback:
            self._is_over = True
        self._on_exit(code)

    def _end_strays(self) -> None:
        """End what of it has left the group."""
        try:
            end_marked(self._work)
        except Exception:  # the slot is taken until the end is told
            log.exception("what a trainer may have left behind cannot be looked for")

    def _drain(self) -> None:
        """Wait for the end of the output, unless somebody holds it open without a word."""
        while self._reader.is_alive():
            lines = self._lines
            self._reader.join(DRAIN_S)
            if lines == self._lines and not self._in_callback.locked():
                return

    def _read(self) -> None:
        log_file = contextlib.closing(_BoundedLog(self._work / LOG_FILE))
        with self._started.output as output, log_file as kept:
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
        self._room_bytes = MAX_LOG_BYTES
        self._file: IO[bytes] | None = None

    def write(self, line: bytes) -> None:
        """Keep a line while there is room."""
        if self._room_bytes > 0:
            try:
                if self._file is None:
                    self._file = self._path.open("wb", buffering=0)
                self._room_bytes -= self._file.write(line)
            except OSError as error:
                self._refused(error)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _refused(self, error: OSError) -> None:
        log.warning("%s: %s; the trainer goes on without it", LOG_FILE, plain(error))
        self._room_bytes = 0


def _kept(
    nursery: Nursery, command: Sequence[str], environment: Mapping[str, str], work: Path
) -> Kept:
    kept = nursery.start(command, environment, work)
    record(work, kept.pid)
    return kept


class _Popened:
    """What `subprocess` has started."""

    is_clean = False
    is_lost = False

    def __init__(
        self, process: children.Process, output: IO[bytes], let_go: Callable[[], None]
    ) -> None:
        self.pid = self.trainer_pid = process.pid
        self.output = output
        self.let_go = let_go
        self._process = process

    def await_end(self) -> None:
        if sys.platform != "win32" and hasattr(os, "waitid"):
            # Not reaped yet, so that its id cannot be anybody else's when its group is ended.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()

    def reap(self) -> int:
        return self._process.wait()


if sys.platform == "win32":

    def _start(command: list[str], environment: dict[str, str], work: Path) -> Started:
        """Start a trainer in a job object, whose end ends all of it."""
        job = JobObject()
        process = children.start(
            command,
            environment,
            work,
            stderr=children.WITH_OUTPUT,
            windows_flags=CREATE_SUSPENDED,
        )
        try:
            job.assign(process.pid)
            record(work, process.pid)
            psutil.Process(process.pid).resume()
        except (OSError, psutil.Error) as error:
            process.kill()
            job.close()
            raise OSError(f"it cannot be put into a job object: {plain(error)}") from error
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        return _Popened(process, process.stdout, job.close)

else:

    def _start(command: list[str], environment: dict[str, str], work: Path) -> Started:
        """Start a trainer under a keeper, whose input's end ends all of it."""
        process = children.start(
            [sys.executable, "-I", "-S", str(LAUNCH), str(len(command))],
            environment,
            work,
            stdin=children.PIPE,
            stderr=children.WITH_OUTPUT,
        )
        assert process.stdin is not None  # noqa: S101 - they are pipes
        assert process.stdout is not None  # noqa: S101
        record(work, process.pid)
        lifeline = process.stdin
        try:
            lifeline.write(b"".join(os.fsencode(word) + b"\0" for word in command))
            lifeline.flush()
        except OSError:
            process.kill()
            process.wait()
            raise

        def let_go() -> None:
            with contextlib.suppress(OSError):
                lifeline.close()

        return _Popened(process, process.stdout, let_go)
