"""Programs of the trainers' as real processes that need not load torch and its like first.

A server loads the libraries once and forks for each program, which then runs as `python -m` would
run it: our own modules are its own, and so are its standard streams, signals and exit code.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

DEADLINE_S = 120.0
LIBRARIES = ["pyarrow.parquet", "torch", "torch._dynamo", "xgboost"]
# Libraries read it when they are loaded, which a trainer does after it has set it.
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}


class Child:
    """One program: `stdout` is read as it comes, `stderr()` when it is over."""

    def __init__(self, program: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it; `program` is what would follow `python`: -m MODULE or -c CODE, and arguments.

        `environment` is added to that of the tests.
        """
        reader, writer = multiprocessing.Pipe(duplex=False)
        handle, name = tempfile.mkstemp(suffix=".stderr")
        os.close(handle)
        self._stderr = Path(name)
        whole = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment}
        self._process = _server().Process(target=_become, args=(list(program), whole, writer, name))
        self._process.start()
        writer.close()
        self.stdout = io.TextIOWrapper(os.fdopen(os.dup(reader.fileno()), "rb"), "utf-8")
        reader.close()

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def wait(self, timeout_s: float = DEADLINE_S) -> int:
        """Wait until it is over; its exit code."""
        self._process.join(timeout_s)
        code = self._process.exitcode
        assert code is not None, f"it has not ended in {timeout_s} s"
        return code

    def stderr(self) -> str:
        return self._stderr.read_text("utf-8", "replace")

    def close(self) -> None:
        """End it, if it is not over, and leave nothing of it."""
        self._process.kill()
        self._process.join(DEADLINE_S)
        self._process.close()
        self.stdout.close()
        self._stderr.unlink()


@contextlib.contextmanager
def started(program: Sequence[str], **environment: str) -> Iterator[Child]:
    """Start a program; see `Child`. It does not outlive the block."""
    child = Child(program, environment)
    try:
        yield child
    finally:
        child.close()


def run(program: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return what came of it; see `Child`."""
    if os.name != "posix":
        return subprocess.run(
            [sys.executable, *program], capture_output=True, text=True, timeout=DEADLINE_S,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment}, check=False,
        )  # fmt: skip
    with started(program, **environment) as child:
        watch = threading.Timer(DEADLINE_S, child.send_signal, [9])
        watch.start()
        try:
            said, code = child.stdout.read(), child.wait()
        finally:
            watch.cancel()
        return subprocess.CompletedProcess(list(program), code, said, child.stderr())


def _server() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)
    # It starts with the first program, and with the environment of that moment.
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        from multiprocessing.forkserver import ensure_running

        ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return context


def _become(
    program: list[str], environment: Mapping[str, str], writer: Connection, stderr: str
) -> None:
    """In the child: become the program."""
    os.dup2(writer.fileno(), 1)
    writer.close()
    errors = os.open(stderr, os.O_WRONLY | os.O_APPEND)
    os.dup2(errors, 2)
    os.close(errors)
    os.environ.clear()
    os.environ.update(environment)
    option, what, *arguments = program
    if option == "-m":
        sys.argv = [what, *arguments]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [option, *arguments]
        exec(what, {"__name__": "__main__"})  # noqa: S102 - as python -c does
