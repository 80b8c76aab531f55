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


def test_a_plan_is_told_again(fleet: Any, start: Start, tmp_path: Path) -> None:
    """A manifest is judged while it is written: with an error, and without."""
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
    assert (changes["added"], changes["orphaned"]) == (1, 1)
    watching.send_signal(signal.SIGINT)
    assert watching.wait(DEADLINE_S) == 0


def test_a_manifest_is_checked_while_it_is_written(start: Start, tmp_path: Path) -> None:
    """Without a coordinator; a file that an editor has taken away for a moment ends nothing."""
    wanted = tmp_path / "wanted.toml"
    good = 'schema_version = 1\n[[jobs]]\nmodel = "gru"\nmode = "oracle"\n'
    wanted.write_text(good.replace('"gru"', '"grru"'), "utf-8")
    watching = start("check", str(wanted), "--offline", "--watch", "--json")
    assert watching.stdout is not None
    first = json.loads(watching.stdout.readline())
    assert (first["ok"], first["errors"][0]["key"]) == (False, "model")
    wanted.unlink()
    assert "No such file" in json.loads(watching.stdout.readline())["message"]
    beside = tmp_path / "beside.toml"
    beside.write_text(good, "utf-8")
    beside.replace(wanted)
    assert json.loads(watching.stdout.readline()) == {
        "ok": True, "name": "", "jobs": 1, "errors": [], "warnings": []
    }  # fmt: skip
    watching.send_signal(signal.SIGINT)
    assert watching.wait(DEADLINE_S) == 0


def test_a_machine_is_checked_until_it_is_well(start: Start, tmp_path: Path) -> None:
    """The same check again: with a manifest that is not there, and when it is."""
    plan = tmp_path / "plan.toml"
    at = ("--state", str(tmp_path / "state"), "--manifest", str(plan))
    watching = start("doctor", "--role", "coordinator", *at, "--watch", "--json")
    assert watching.stdout is not None
    found = [one["level"] for one in _checks(watching.stdout.readline(), "manifest")]
    assert found == ["fail"]
    plan.write_text("schema_version = 1\n", "utf-8")
    told = (_checks(line, "manifest") for line in watching.stdout)
    assert next(one for one in told if one[0]["level"] != "fail")[0]["text"].endswith("0 jobs")
    watching.send_signal(signal.SIGINT)
    assert watching.wait(DEADLINE_S) == 0


def _checks(line: str, name: str) -> list[dict[str, Any]]:
    return [one for one in json.loads(line)["checks"] if one["check"] == name]
