"""`--watch`: what is shown goes on, as a script and as a person sees it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60.0
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(fleet: Any) -> Iterator[Start]:
    """Start the command line; whatever says nothing for a minute is ended."""
    running = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "coordinator.cli", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
            env=fleet.environment,
        )  # fmt: skip
        watchdog = Timer(DEADLINE_S, process.kill)
        watchdog.start()
        running.append((process, watchdog))
        return process

    yield start
    for process, watchdog in running:
        watchdog.cancel()
        with process:
            process.kill()


def test_why_is_told_again_when_it_has_changed(fleet: Any, start: Start) -> None:
    """An object a line, from the reasons to the end; Ctrl-C is the usual end of it."""
    fleet.plan('model = "gru"\nmode = "oracle"\nrequire_cuda = true')
    fleet.coordinator()
    fleet.agent("attic-pi")
    fleet.until("gru-oracle", "pending")
    watching = start("why", "gru-oracle", "--watch", "--json")
    assert watching.stdout is not None
    first = json.loads(watching.stdout.readline())
    assert (first["state"], first["forecast"]["verdict"]) == ("pending", "stuck")
    assert [host["reasons"] for host in first["hosts"]] == [["needs CUDA; this host has none"]]
    fleet.cancel("gru-oracle")
    states = iter(json.loads(line)["state"] for line in watching.stdout)
    assert next(state for state in states if state != "pending") == "cancelled"
    watching.send_signal(signal.SIGINT)
    assert watching.wait(DEADLINE_S) == 0

    told = start("why", "gru-oracle").communicate()[0]
    assert told.startswith("gru-oracle is cancelled: ")


def test_a_plan_and_its_account_are_told_again(fleet: Any, start: Start, tmp_path: Path) -> None:
    """A manifest is judged while it is written: with an error, and without; what is done, added."""
    fleet.plan('model = "gru"\nmode = "oracle"')
    fleet.coordinator()
    wanted = tmp_path / "wanted.toml"
    good = fleet.manifest.read_text("utf-8")
    wanted.write_text(good.replace('"gru"', '"grru"'), "utf-8")
    watching = start("plan", str(wanted), "--watch", "--json")
    assert watching.stdout is not None
    first = json.loads(watching.stdout.readline())
    assert not first["ok"]
    assert "did you mean 'gru'" in first["errors"][0]["message"]
    beside = tmp_path / "beside.toml"
    beside.write_text(good.replace('"gru"', '"lstm"'), "utf-8")
    beside.replace(wanted)
    told = (json.loads(line) for line in watching.stdout)
    changes = next(one["changes"] for one in told if one["ok"])
    assert (changes["add"], changes["orphan"]) == (1, 1)
    watching.send_signal(signal.SIGINT)
    assert watching.wait(DEADLINE_S) == 0

    watching = start("stats", "--watch", "--json")
    assert watching.stdout is not None
    assert json.loads(watching.stdout.readline())["total"]["jobs"]["cancelled"] == 0
    fleet.cancel("gru-oracle")
    assert json.loads(watching.stdout.readline())["total"]["jobs"]["cancelled"] == 1
    watching.send_signal(signal.SIGINT)
    assert watching.wait(DEADLINE_S) == 0
