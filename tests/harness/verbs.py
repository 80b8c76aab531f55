"""Verbs of `fleet`, called in this process: no interpreter is started for each."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

from coordinator.cli import main
from tests.harness.fleet import ROOT

PROGRAMS = frozenset(
    {"agent", "backup", "broker", "coordinator", "doctor", "fsck", "predict", "up"}
)


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


def verb(*arguments: str, environment: Mapping[str, str] | None = None) -> Done:
    """Call a verb in a window of 80 columns, without this machine's own `FLEET_` variables.

    Those that turn the process into another program have to be called in one of their own.
    """
    assert arguments[0] not in PROGRAMS, "it would take the place of this process"
    bare = {key: one for key, one in os.environ.items() if not key.startswith("FLEET_")}
    variables = {**bare, "COLUMNS": "80", "LINES": "40", **(environment or {})}
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, variables, clear=True),
        contextlib.chdir(ROOT),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main([*arguments])
    return Done(code, out.getvalue(), err.getvalue())
