"""`--watch`: what is shown goes on, as a script and as a person sees it."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from tests.harness.verbs import started

DEADLINE_S = 60.0
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(fleet: Any) -> Iterator[Start]:
    """Start the command line; whatever says nothing for a minute is ended."""
    running = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = started(*arguments, environment=fleet.environment, stderr=subprocess.PIPE)
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
    fleet.plan('model = "gru"\nmode = "oracle"\nrequire_cuda = true')
    fleet.coordinator()
    fleet.agent("attic-pi")
    fleet.until("gru-oracle", "pending")
    watching = start("why", "gru-oracle", "--watch", "--json")
    assert watching.stdout is not None
    first = json.loads(watching.stdout.readline())
    assert (first["state"], first["forecast"]["verdict"]) == ("pending", "stuck")
    assert [host["reasons"] for host in first["hosts"]] == [[{"code": "no-cuda"}]]
    fleet.cancel("gru-oracle")
    states = iter(json.loads(line)["state"] for line in watching.stdout)
    assert next(state for state in states if state != "pending") == "cancelled"
    watching.send_signal(signal.SIGINT)
    assert watching.wait(DEADLINE_S) == 0

    told = start("why", "gru-oracle").communicate()[0]
    assert told.startswith("gru-oracle is cancelled: ")


@pytest.mark.parametrize("verb", [("plan",), ("check", "--offline")], ids=["plan", "check"])
def test_a_manifest_is_judged_while_it_is_written(
    fleet: Any, start: Start, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    """A file that an editor has taken away for a moment ends nothing."""
    if verb == ("plan",):
        fleet.plan('model = "gru"\nmode = "oracle"')
        fleet.coordinator()
    wanted, beside = tmp_path / "wanted.toml", tmp_path / "beside.toml"
    good = 'schema_version = 1\n[[jobs]]\nmodel = "lstm"\nmode = "oracle"\n'
    wanted.write_text(good.replace("lstm", "lst"), "utf-8")
    watching = start(*verb, str(wanted), "--watch", "--json")
    assert watching.stdout is not None
    told = (json.loads(line) for line in watching.stdout)
    first = next(told)
    assert (first["ok"], first["errors"][0]["key"]) == (False, "model")
    wanted.unlink()
    assert "No such file" in next(told)["message"]
    beside.write_text(good, "utf-8")
    beside.replace(wanted)
    last = next(one for one in told if one["ok"])
    if verb == ("plan",):
        assert (last["changes"]["added"], last["changes"]["orphaned"]) == (1, 1)
    else:
        assert last == {"ok": True, "name": "", "jobs": 1, "errors": [], "warnings": []}
    watching.send_signal(signal.SIGINT)
    assert watching.wait(DEADLINE_S) == 0


def test_a_machine_is_checked_until_it_is_well(start: Start, tmp_path: Path) -> None:
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
