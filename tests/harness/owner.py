"""Somebody who sets a fleet up at a terminal, with a home of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.harness.fleet import ROOT

DEADLINE_S = 60.0


@dataclass
class Owner:
    """Somebody at a terminal, with a home of their own."""

    home: Path

    @property
    def environment(self) -> dict[str, str]:
        """No setting of whoever runs the tests."""
        return {key: value for key, value in os.environ.items() if not key.startswith("FLEET_")} | {
            "XDG_CONFIG_HOME": str(self.home),
            "COLUMNS": "80",
            "PYTHONUNBUFFERED": "1",
        }

    @property
    def fleet(self) -> Path:
        """Where `fleet init` puts everything."""
        return self.home / "fleet"

    def run(
        self, *arguments: str, stdin: str = "", **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "coordinator.cli", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            env=self.environment | more,
            cwd=ROOT,
            check=False,
        )

    def done(self, *arguments: str, stdin: str = "", **more: str) -> str:
        """Run a command that goes well; what it printed."""
        ran = self.run(*arguments, stdin=stdin, **more)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def refused(self, *arguments: str, **more: str) -> str:
        """Run a command that is refused; its one line."""
        ran = self.run(*arguments, **more)
        assert ran.returncode in {1, 2}, ran.stdout + ran.stderr
        assert "Traceback" not in ran.stderr
        return ran.stderr
