"""`fleet doctor` as a process, and what it has found."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.harness.fleet import ROOT

NOWHERE = "mqtt://127.0.0.1:1"


def doctor(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run it, with further variables of the environment."""
    environment = {key: one for key, one in os.environ.items() if not key.startswith("FLEET_")}
    return subprocess.run(
        [sys.executable, "-m", "coordinator.cli", "doctor", *arguments],
        capture_output=True, text=True, timeout=120, check=False, cwd=ROOT,
        env={**environment, **variables},
    )  # fmt: skip


def checks(done: subprocess.CompletedProcess[str]) -> dict[str, tuple[str, str]]:
    """Return level and text of each check; of several with one name the worst."""
    found: dict[str, tuple[str, str]] = {}
    for one in json.loads(done.stdout)["checks"]:
        if one["level"] != "ok" or one["check"] not in found:
            found[one["check"]] = (one["level"], f"{one['text']}; {one['remedy']}")
    return found
