"""Verbs of `fleet`: called in this process, or run in one of their own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest

from coordinator.cli import main
from tests.harness.fleet import ROOT, bare_environment

PROGRAMS = frozenset({"agent", "broker", "coordinator", "doctor", "predict", "up"})
DEADLINE_S = 120.0


def is_program(arguments: Sequence[str]) -> bool:
    """Tell whether a verb turns the process into another program."""
    return bool(PROGRAMS & {*arguments[:1]}) or "--here" in arguments


@dataclass(frozen=True)
class Done:
    """What a verb has said, and its exit code."""

    returncode: int
    stdout: str
    stderr: str

    def json(self, code: int = 0) -> Any:
        """Return what it has printed as JSON; its exit code has to be `code`."""
        assert self.returncode == code, self.stderr
        return json.loads(self.stdout)

    def text(self) -> str:
        """Return what it has printed; it has to have gone well."""
        assert self.returncode == 0, self.stdout + self.stderr
        return self.stdout


def verb(*arguments: str, environment: Mapping[str, str] | None = None) -> Done:
    """Call a verb in a window of 80 columns, without this machine's own `FLEET_` variables."""
    assert not is_program(arguments), "it would take the place of this process"
    variables = {**bare_environment(), "COLUMNS": "80", "LINES": "40", **(environment or {})}
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, variables, clear=True),
        contextlib.chdir(ROOT),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main([*arguments])
    return Done(code, out.getvalue(), err.getvalue())


def process(
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    prefix: tuple[str, ...] = (),
    typed: str = "",
    **more: Any,
) -> Done:
    """Run a verb in a process of its own, without this machine's own `FLEET_` variables.

    `prefix` is a command that runs it, `typed` what comes by standard input.
    """
    done = subprocess.run(
        [*prefix, *command(*arguments)], timeout=DEADLINE_S, check=False, text=True,
        env={**bare_environment(), "COLUMNS": "80", **(environment or {})},
        **{"cwd": ROOT, "input": typed, "capture_output": True} | more,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


def command(*arguments: str) -> list[str]:
    """Return how the command line is started."""
    return [sys.executable, "-m", "coordinator.cli", *arguments]


def started(
    *arguments: str, environment: Mapping[str, str] | None = None, **more: Any
) -> subprocess.Popen[str]:
    """Start a verb that goes on; what it says is read line by line."""
    return subprocess.Popen(
        command(*arguments), text=True, cwd=ROOT, env={**bare_environment(), **(environment or {})},
        **{"stdout": subprocess.PIPE} | more,
    )  # fmt: skip


def answered(word: str, *arguments: str, **more: Any) -> Done:
    """Run a verb in a process whose standard input is a terminal, where `word` is typed."""
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{word}\n".encode())
        return process(*arguments, input=None, stdin=theirs, **more)
    finally:
        os.close(ours)
        os.close(theirs)
