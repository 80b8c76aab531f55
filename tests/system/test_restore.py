"""Backup and restore as docs/how-to/operations.md tells them, with the real programs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.harness.fleet import ROOT
from tests.harness.verbs import process

PAGE = ROOT / "docs" / "how-to" / "operations.md"


def documented_steps() -> str:
    """The commands that the page gives to whoever restores a ledger."""
    section = PAGE.read_text("utf-8").split("\n## Restore\n")[1].split("\n## ")[0]
    found = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1].replace("fleet ", f"{sys.executable} -m coordinator.cli ")


def refuses(coordinator: Any, *words: str) -> None:
    """It does not start, and says so."""
    coordinator.log.unlink()
    coordinator.start(wait=False)
    assert coordinator.process.wait(60) == 1
    coordinator.process.stdout.close()
    said = " ".join(coordinator.said().split())
    assert [word for word in words if word not in said] == [], said


@pytest.mark.posix  # the page's commands are for a POSIX shell
def test_a_damaged_ledger_is_restored_as_documented(fleet: Any, short: str) -> None:
    state, copy = fleet.tmp / "coordinator", fleet.tmp / "copy.db"
    fleet.plan(short, 'model = "gru"\nmode = "oracle"\nrequire_cuda = true')
    coordinator = fleet.coordinator()
    fleet.agent()
    fleet.until("gbt-oracle", "completed")

    done = process("backup", str(copy), "--state", str(state))
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(rf"{copy}: 2 jobs, 0\.\d MiB, checked\n", done.stdout)
    assert process("backup", str(copy), "--state", str(state)).returncode == 1, (
        "it is there already"
    )
    assert process("fsck", "--state", str(state)).returncode == 0
    assert process("fsck", "--repair", "--state", str(state)).returncode == 2, "it runs"
    fleet.cancel("gru-oracle")
    fleet.requeue("gbt-oracle")
    fleet.until("gbt-oracle", lambda row: row["state"] == "completed" and row["attempt"] == 2)

    coordinator.kill()
    ledger = state / "training_jobs.db"
    (state / "training_jobs.db-wal").unlink()
    refuses(coordinator, "ends with event", "its -wal is gone", "--accept-ledger")
    ledger.write_bytes(b"noise" * 10_000)
    refuses(coordinator, "restore a backup")
    ledger.unlink()
    refuses(coordinator, "is missing or empty", "receipt.key, models/")
    ledger.touch()

    steps = subprocess.run(
        ["/bin/sh", "-euxc", documented_steps()],
        env={**os.environ, "STATE": str(state), "COPY": str(copy)},
        capture_output=True, text=True, timeout=60, cwd=ROOT, check=False,
    )  # fmt: skip
    assert steps.returncode == 0, steps.stdout + steps.stderr
    coordinator.start()
    jobs = fleet.status()["jobs"]
    assert (jobs["completed"], jobs["pending"], jobs["cancelled"]) == (1, 1, 0)
    assert fleet.events("gbt-oracle")[0] == "added"
    fleet.requeue("gbt-oracle")
    # The agent has had attempt 2 already.
    fleet.until("gbt-oracle", lambda row: row["state"] == "completed" and row["attempt"] == 3)
    coordinator.stop()
    done = process("fsck", "--repair", "--state", str(state))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
