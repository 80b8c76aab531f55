"""Somebody who sets a fleet up at a terminal, with a home of their own."""

from __future__ import annotations

import queue
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

from tests.harness.fleet import ROOT, bare_environment
from tests.harness.verbs import Done, command, is_program, process, verb

DEADLINE_S = 60.0


@dataclass
class Owner:
    """Somebody at a terminal; `prefix` is a command that runs theirs on a machine of their own."""

    home: Path
    prefix: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """No setting of whoever runs the tests."""
        own = {"XDG_CONFIG_HOME": str(self.home), "COLUMNS": "80", "PYTHONUNBUFFERED": "1"}
        return bare_environment() | own

    @property
    def fleet(self) -> Path:
        """Where `fleet init` puts everything."""
        return self.home / "fleet"

    def run(self, *arguments: str, typed: str = "", **more: str) -> Done:
        """Run a command to its end; in this process, where it can be."""
        environment = self.environment | more
        if typed or self.prefix or is_program(arguments):
            return process(*arguments, environment=environment, prefix=self.prefix, typed=typed)
        return verb(*arguments, environment=environment)

    def done(self, *arguments: str, typed: str = "", **more: str) -> str:
        """Run a command that goes well; what it printed."""
        return self.run(*arguments, typed=typed, **more).text()

    def refused(self, *arguments: str, **more: str) -> str:
        """Run a command that is refused; its one line."""
        ran = self.run(*arguments, **more)
        assert ran.returncode in {1, 2}, ran.stdout + ran.stderr
        assert "Traceback" not in ran.stderr
        return ran.stderr

    def enroll(
        self, name: str, address: str = "127.0.0.1"
    ) -> tuple[subprocess.Popen[str], list[str]]:
        """Start `fleet enroll`; return it, and the words of the command that it prints."""
        waiting = subprocess.Popen(
            command("enroll", name, "--address", f"{address}:0"),
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=self.environment,
            cwd=ROOT,
        )  # fmt: skip
        lines: queue.Queue[str] = queue.Queue()

        def read() -> None:
            assert waiting.stdout is not None
            with waiting.stdout:
                for line in waiting.stdout:
                    lines.put(line)

        threading.Thread(target=read, daemon=True).start()
        while True:
            line = lines.get(timeout=DEADLINE_S).strip()
            if line.startswith("fleet join "):
                return waiting, line.split()[1:]
