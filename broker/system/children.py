"""Starting other programs; the only importer of `subprocess`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, TypeAlias

KILL_S: Final = 1.0
PIPE: Final = subprocess.PIPE
NULL: Final = subprocess.DEVNULL
WITH_OUTPUT: Final = subprocess.STDOUT  # as `stderr`: into the same pipe as the output

Process: TypeAlias = subprocess.Popen[bytes]

_hung: Final[dict[tuple[str, ...], Process]] = {}  # by command


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program has printed, and its exit code (negative for a signal)."""

    code: int
    output: str
    errors: str

    def complaint(self, otherwise: str) -> str:
        """Return the last line of its errors, or `otherwise`."""
        return (self.errors.strip().splitlines() or [otherwise])[-1]


def start(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    *,
    stdin: int = NULL,
    stdout: int = PIPE,
    stderr: int | IO[bytes] | None = None,
    windows_flags: int = 0,
) -> Process:
    """Start a program in a session (on Windows: a process group) of its own. Raises OSError."""
    if sys.platform == "win32":
        windows_flags |= subprocess.CREATE_NEW_PROCESS_GROUP
    return subprocess.Popen(
        command,
        env=environment,
        cwd=folder,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=os.name == "posix",
        creationflags=windows_flags,
    )


def run(command: Sequence[str]) -> int:
    """Run a program at this one's terminal to its end; return its exit code."""
    return subprocess.run(command, check=False).returncode


def answer_of(
    command: Sequence[str],
    timeout_s: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> Answer:
    """Run a program that answers and ends.

    Raises OSError when it cannot be started, `TimeoutError` when it is late. One that SIGKILL does
    not end, as at a hanging driver, is left alone, and not started again until it has ended.
    """
    key = tuple(command)
    hung = _hung.get(key)
    if hung is not None and hung.poll() is None:
        raise TimeoutError(f"process {hung.pid} hangs, and cannot be ended")
    process = subprocess.Popen(command, stdin=NULL, stdout=PIPE, stderr=PIPE, env=environment)
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except BaseException as error:
        process.kill()
        if sys.platform != "win32":  # there a thread reads each, and closes it
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        if not has_ended(process, KILL_S):
            _hung[key] = process
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        raise TimeoutError(f"no answer in {timeout_s:.0f} s") from None
    return Answer(
        process.returncode, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")
    )


def has_ended(process: Process, timeout_s: float) -> bool:
    """Wait for a program's end; tell whether it came in time."""
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    return True
