"""Hosts that are wanted back, and a job beside the manifest: real programs, the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _environment(fleet: Any) -> dict[str, str]:
    own = {key: value for key, value in os.environ.items() if not key.startswith("FLEET_")}
    aimed = {"FLEET_BROKER": fleet.broker_url, "FLEET_TOPIC_ROOT": fleet.root, "COLUMNS": "80"}
    return own | aimed


@pytest.fixture
def cli(fleet: Any) -> Any:
    """The command line, aimed at the test's fleet."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "coordinator.cli", *arguments], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=90, env=_environment(fleet), cwd=ROOT,
            check=False,
        )  # fmt: skip

    return run


def _answered(word: str, fleet: Any, *arguments: str) -> tuple[int, str]:
    """Answer a question at a terminal: the exit code, and what was on standard error."""
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{word}\n".encode())
        done = subprocess.run(
            [sys.executable, "-m", "coordinator.cli", *arguments], stdin=theirs,
            capture_output=True, text=True, timeout=90, env=_environment(fleet), cwd=ROOT,
            check=False,
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(theirs)
    return done.returncode, done.stderr


def _done(finished: subprocess.CompletedProcess[str]) -> str:
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.slow
def test_a_job_moves_away_from_a_host_that_is_wanted_back(fleet: Any, cli: Any, long: str) -> None:
    """By an operator's drain, then by the owner on the machine, whom no operator overrules."""
    fleet.plan(long)
    fleet.coordinator()
    fleet.agent("one")
    first = fleet.until("gbt-oracle", "running")
    assert first["host"] == "one"
    fleet.agent("two")
    assert "it gives back gbt-oracle" in _done(cli("drain", "one", "--now"))
    second = fleet.until("gbt-oracle", lambda row: row["state"] == "running" and row["attempt"] > 1)
    assert second["host"] == "two"
    assert "it was drained by operator:local at " in _done(cli("resume", "one"))
    state = str(fleet.tmp / "two")
    assert "takes no jobs until " in _done(cli("snooze", "--here", "3h", "--state", state))
    third = fleet.until("gbt-oracle", lambda row: row["state"] == "running" and row["attempt"] > 2)
    assert third["host"] == "one"
    assert "two: takes no jobs now: snoozed until " in _done(cli("workers"))
    refused = cli("resume", "two")
    assert refused.returncode == 1
    assert "by its owner" in refused.stderr
    told = [row["event"] for row in json.loads(_done(cli("events", "--host", "one", "--json")))]
    assert {"drain", "resume", "released"} <= {*told}


def test_one_job_beside_the_manifest_is_waited_for_and_fetched(
    fleet: Any, cli: Any, tmp_path: Path
) -> None:
    """In one command; asked for again it is there already; a mistake is named by its option."""
    fleet.plan()
    fleet.coordinator()
    agent = fleet.agent()
    job = ("run", "--model", "gbt", "--mode", "oracle", "-H", "epochs=3", "--n-resamples", "20")
    wrong = cli(*job, "-H", "epoch=3", "--min-ram-gib", "-1")
    assert wrong.returncode == 1
    assert "-H epoch: unknown hyperparameter" in wrong.stderr
    assert "--min-ram-gib: must be more than 0" in wrong.stderr
    out = tmp_path / "out"
    said = _done(cli(*job, "--name", "mine", "--get", str(out)))
    assert "mine completed on pi" in said
    assert (out / "mine" / "gbt_oracle_train.json").is_file()
    _done(cli("reload"))
    again = json.loads(_done(cli(*job, "--json")))
    assert (again["name"], again["state"], again["added"]) == ("mine", "completed", False)
    failed = cli(*job, "--name", "bad", "--seed", "7", "--train-host", "nobody", "--wait")
    assert failed.returncode == 1
    assert "nobody" in failed.stderr
    agent.stop()
    assert "the agent of pi has ended" in agent.said()


def test_all_that_is_pending_is_cancelled_only_when_somebody_says_yes(
    fleet: Any, cli: Any, tmp_path: Path
) -> None:
    """Without a terminal nobody can be asked; a paused fleet keeps them pending, and says so."""
    fleet.plan()
    fleet.coordinator()
    _done(cli("pause"))
    for seed, told in (
        ("1", "error: 1 job is pending; say --yes to cancel it\n"),
        ("2", "error: 2 jobs are pending; say --yes to cancel them\n"),
    ):
        _done(cli("run", "--model", "gbt", "--mode", "oracle", "--seed", seed))
        unsaid = cli("cancel", "--all-pending")
        assert (unsaid.returncode, unsaid.stderr) == (2, told)
    status = _done(cli("status"))
    assert "PAUSED" in status.splitlines()[0]
    assert "No host is known, so nothing can start" in status
    code, asked = _answered("n", fleet, "cancel", "--all-pending")
    assert (code, asked.partition(": ")[2]) == (1, "nothing was changed\n")
    named = tmp_path / "named.toml"
    named.write_text(
        'schema_version = 1\n[[jobs]]\nmodel = "gbt"\nmode = "oracle"\nallowed_hosts = ["lab"]\n'
    )
    checked = _done(cli("check", str(named)))
    assert "names of hosts were not checked: no host is known\n" in checked
    assert "cancelled 2 pending jobs" in _done(cli("cancel", "--all-pending", "--yes"))
    assert "nothing is pending" in _done(cli("cancel", "--all-pending"))
    assert cli("cancel", "x", "--all-pending").returncode == 2
    assert cli("snooze", "pi").returncode == 2
    assert cli("snooze", "pi", "soon").returncode == 2
    dashless = cli("snooze", "here", "1h")
    assert (dashless.returncode, "`fleet snooze --here 1h`" in dashless.stderr) == (1, True)
    assert cli("resume").returncode == 2
    _done(cli("pause", "--off"))
