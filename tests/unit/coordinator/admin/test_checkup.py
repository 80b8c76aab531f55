"""A coordinator that runs here, as its doctor finds out how it was started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.admin.checkup import started_with

pytestmark = pytest.mark.system

# What looks as a coordinator does, and is none; before it speaks its command line may be empty.
_WAIT = "import sys; print('here', flush=True); sys.stdin.read()"


def _started(folder: Path, *arguments: str) -> dict[str, Path]:
    command = [sys.executable, "-c", _WAIT, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            return started_with(process.pid)
        finally:
            process.kill()


def test_what_a_coordinator_was_told_is_read_from_its_command_line(tmp_path: Path) -> None:
    """A path as it is from the folder where it runs; of another program nothing is said."""
    module = "coordinator.service"
    told = _started(tmp_path, module, "--root=x", "--manifest", "plan.toml", "--ca=/srv/ca")
    assert told == {"manifest": tmp_path / "plan.toml", "ca": Path("/srv/ca")}
    assert _started(tmp_path, module, "--manifest=plan.toml") == {
        "manifest": tmp_path / "plan.toml"
    }
    assert _started(tmp_path, module) == {}
    assert _started(tmp_path, "broker.embedded", "--ca=/srv/ca") == {}
