"""What commands say in a window that is too narrow for it: a sentence is broken between words."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest

from tests.harness.fleet import ROOT, wait_until

COLUMNS = 30
pytestmark = pytest.mark.skipif(os.name != "posix", reason="a terminal of this kind is not there")


class Window:
    """A terminal on which a command writes to one of its two streams."""

    def __init__(self, fleet: Any, stream: str, *arguments: str) -> None:
        import pty

        self._ours, theirs = pty.openpty()
        streams: dict[str, Any] = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            stream: theirs,
        }
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-m", "coordinator.cli", *arguments],
            stdin=subprocess.DEVNULL, cwd=ROOT, **streams,
            env={**fleet.environment, "FLEET_BROKER": fleet.broker_url,
                 "FLEET_TOPIC_ROOT": fleet.root, "COLUMNS": str(COLUMNS)},
        )  # fmt: skip
        os.close(theirs)
        self.said = ""

    def until(self, words: str) -> str:
        """What is shown once these words are, as one line; each line of it fits."""
        with suppress(OSError):  # the other side is closed: it has ended
            while words not in self._as_one_line() and (piece := os.read(self._ours, 65536)):
                self.said += piece.decode()
        lines = self.said.splitlines()
        # A command that one may copy stays whole, whatever the window.
        sentences = [line for line in lines if not line.startswith("`")]
        wide = [line for line in sentences if len(line) > COLUMNS and " " in line]
        assert not wide, self.said
        assert len(lines) > 1, self.said
        assert words in self._as_one_line(), self.said
        return self._as_one_line()

    def _as_one_line(self) -> str:
        return " ".join(self.said.split())

    def close(self) -> None:
        """End the command, if it has not ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=60)
        os.close(self._ours)


def _said(fleet: Any, words: str, *arguments: str, stream: str = "stdout") -> str:
    window = Window(fleet, stream, *arguments)
    try:
        return window.until(words)
    finally:
        window.close()


def test_what_a_command_has_done_is_whole_in_a_narrow_window(fleet: Any, short: str) -> None:
    """Of each that says it in a sentence; no word stands in two lines."""
    needs_cuda = 'mode = "oracle"\nrequire_cuda = true'
    fleet.plan(short, *(f'model = "{model}"\n{needs_cuda}' for model in ("gru", "cnn", "lstm")))
    fleet.coordinator()
    agent = fleet.agent("the-pc-in-the-attic")
    fleet.until("gbt-oracle", "completed")
    out = str(fleet.tmp / "out")
    assert _said(fleet, "sha256", "get", "gbt-oracle", "-o", out).startswith(f"{out}/gbt-oracle: ")
    assert re.match(
        r"gru-oracle \(\w{12}\) is cancelled", _said(fleet, "cancelled", "cancel", "gru-oracle")
    )
    said = _said(fleet, "lstm", "cancel", "--status", "pending", "--yes")
    assert said == "2 jobs are cancelled: cnn-oracle, lstm-oracle"
    said = _said(fleet, "drained", "drain", "the-pc-in-the-attic")
    assert said.startswith("the-pc-in-the-attic is drained")
    agent.end(signal.SIGTERM)
    wait_until(lambda: fleet.client.list_workers()[0]["presence"] == "left", "the host has left")
    forgotten = "the-pc-in-the-attic is forgotten"
    assert _said(fleet, "forgotten", "forget", "the-pc-in-the-attic") == forgotten


def test_who_waits_for_what_is_away_says_so_in_lines_that_fit(fleet: Any) -> None:
    """Once, on standard error, and goes on."""
    fleet.plan('model = "gru"\nmode = "oracle"\nrequire_cuda = true')
    coordinator = fleet.coordinator()
    fleet.cancel("gru-oracle")
    window = Window(fleet, "stderr", "events", "--follow", "--json", "--timeout", "1")
    try:
        assert window.process.stdout is not None
        assert window.process.stdout.readline()
        coordinator.kill()
        assert window.until("waiting for it").startswith("the broker")
    finally:
        window.close()
