"""Backup and restore as docs/operations.md tells them, with the real programs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "operations.md"


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `fleet`."""
    return subprocess.run(
        [sys.executable, "-m", "coordinator.cli", *arguments],
        capture_output=True, text=True, timeout=60, cwd=ROOT, check=False,
    )  # fmt: skip


def documented_steps() -> str:
    """The commands that the page gives to whoever restores a ledger."""
    section = PAGE.read_text("utf-8").split("\n## Restore\n")[1].split("\n## ")[0]
    found = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1].replace("fleet ", f"{sys.executable} -m coordinator.cli ")


@pytest.mark.skipif(os.name != "posix", reason="the page's commands are for a POSIX shell")
def test_a_damaged_ledger_is_restored_as_documented(fleet: Any, short: str) -> None:
    """A backup of a fleet at work; the ledger is destroyed; the page's steps bring it back."""
    state, copy = fleet.tmp / "coordinator", fleet.tmp / "copy.db"
    fleet.plan(short, 'model = "gru"\nmode = "oracle"\nrequire_cuda = true')
    coordinator = fleet.coordinator()
    fleet.agent()
    fleet.until("gbt-oracle", "completed")

    done = cli("backup", str(copy), "--state", str(state))
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(rf"{copy}: 2 jobs, 0\.\d MiB, checked\n", done.stdout)
    done = cli("backup", str(copy), "--state", str(state))
    assert done.returncode == 1
    assert "exists already" in done.stderr
    assert cli("fsck", "--state", str(state)).returncode == 0
    done = cli("fsck", "--repair", "--state", str(state))
    assert done.returncode == 2
    assert "another coordinator" in done.stderr
    fleet.cancel("gru-oracle")

    coordinator.kill()
    (state / "training_jobs.db").write_bytes(b"noise" * 10_000)
    coordinator.start(wait=False)
    assert coordinator.process.wait(60) == 1
    coordinator.process.stdout.close()
    assert "restore a backup" in coordinator.said()

    steps = subprocess.run(
        ["/bin/sh", "-euxc", documented_steps()],
        env={**os.environ, "STATE": str(state), "COPY": str(copy)},
        capture_output=True, text=True, timeout=60, cwd=ROOT, check=False,
    )  # fmt: skip
    assert steps.returncode == 0, steps.stdout + steps.stderr
    assert "0 findings" in steps.stdout
    coordinator.start()
    jobs = fleet.status()["jobs"]
    assert (jobs["completed"], jobs["pending"], jobs["cancelled"]) == (1, 1, 0)
    assert fleet.events("gbt-oracle")[0] == "added"
    fleet.requeue("gbt-oracle")
    fleet.until("gbt-oracle", lambda row: row["state"] == "completed" and row["attempt"] == 2)
    coordinator.stop()
    done = cli("fsck", "--repair", "--state", str(state))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
