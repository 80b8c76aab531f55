"""Hosts that are wanted back, and a job beside the manifest: real programs, the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.fleet import patient

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
            [sys.executable, "-m", "coordinator.cli", *patient(*arguments)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90,
            env=_environment(fleet), cwd=ROOT,
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
            [sys.executable, "-m", "coordinator.cli", *patient(*arguments)], stdin=theirs,
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
    assert "takes no jobs until " in _done(cli("snooze", "--here", "3h", "--now", "--state", state))
    third = fleet.until("gbt-oracle", lambda row: row["state"] == "running" and row["attempt"] > 2)
    assert third["host"] == "one"
    assert "two: takes no jobs now: snoozed until " in _done(cli("workers"))
    refused = cli("resume", "two")
    assert refused.returncode == 1
    assert "by its owner" in refused.stderr
    told = [row["event"] for row in json.loads(_done(cli("events", "--host", "one", "--json")))]
    assert {"drain", "resume", "released"} <= {*told}


# Runs until it is ended, keeps no checkpoint.
WAITS = """[trainers.waits]
command = [{python}, "-c", "import time; print(flush=True); time.sleep(600)"]
schema = {{ type = "object", properties = {{}} }}
"""


@pytest.mark.slow
def test_whoever_would_lose_work_is_asked_before_it_is_given_back(fleet: Any, cli: Any) -> None:
    """Of a trainer that keeps no checkpoint: the operator, and the owner on the machine."""
    own = WAITS.format(python=json.dumps(sys.executable))
    fleet.plan('model = "waits"\nmode = "oracle"')
    fleet.coordinator(more=own)
    fleet.agent("pi", more=own)
    job = fleet.until("waits-oracle", "running")["job_id"]
    here = ("snooze", "--here", "--now", "--state", str(fleet.tmp / "pi"))
    code, asked = _answered("n", fleet, *here)
    assert (code, f"job {job[:12]} keeps no checkpoint" in asked) == (1, True)
    assert not (fleet.tmp / "pi" / "snooze").exists()
    for verb in (("drain", "pi", "--now"), ("snooze", "pi", "3h", "--now")):
        code, asked = _answered("n", fleet, *verb)
        assert (code, "waits-oracle runs and keeps no checkpoint" in asked) == (1, True)
        assert "nothing was changed" in asked
    assert fleet.show("waits-oracle")["state"] == "running"
    assert "it finishes waits-oracle (--now has it given back)" in _done(cli("drain", "pi"))
    _done(cli("resume", "pi"))
    code, asked = _answered("y", fleet, *here)
    assert code == 0, asked
    fleet.until("waits-oracle", "pending")


@pytest.mark.smoke
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
    none = ("--retries", "0", "--n-resamples", "0", "--stall-timeout-s", "900", "--on-lost", "keep")
    _done(cli("run", "--model", "gru", "--mode", "oracle", "--name", "once", *none))
    spec = json.loads(_done(cli("show", "once", "--json")))["spec"]
    said_so = [spec[key] for key in ("retries", "n_resamples", "stall_timeout_s", "on_lost")]
    assert said_so == [0, 0, 900.0, "keep"]
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
        ("1", r"error: 1 job \(1 pending\): gbt-\S+: say --yes to cancel it\n"),
        ("2", r"error: 2 jobs \(2 pending\): gbt-\S+, gbt-\S+: say --yes to cancel them\n"),
    ):
        _done(cli("run", "--model", "gbt", "--mode", "oracle", "--seed", seed))
        unsaid = cli("cancel", "--status", "pending")
        assert unsaid.returncode == 2
        assert re.fullmatch(told, unsaid.stderr)
    status = _done(cli("status"))
    assert "PAUSED" in status.splitlines()[0]
    assert "No host is known, so nothing can start" in status
    code, asked = _answered("n", fleet, "cancel", "--status", "pending")
    assert (code, asked.partition("Cancel 2 jobs? [y/N]: ")[2]) == (1, "nothing was changed\n")
    named = tmp_path / "named.toml"
    named.write_text(
        'schema_version = 1\n[[jobs]]\nmodel = "gbt"\nmode = "oracle"\nallowed_hosts = ["lab"]\n'
    )
    checked = _done(cli("check", str(named)))
    assert "names of hosts were not checked: no host is known\n" in checked
    assert "2 jobs are cancelled" in _done(cli("cancel", "--status", "pending", "--yes"))
    assert "no pending jobs" in _done(cli("cancel", "--status", "pending"))
    assert cli("cancel", "x", "--status", "pending").returncode == 2
    assert cli("cancel").returncode == 2
    assert cli("snooze", "pi").returncode == 2
    assert cli("snooze", "pi", "soon").returncode == 2
    dashless = cli("snooze", "here", "1h")
    assert (dashless.returncode, "`fleet snooze --here 1h`" in dashless.stderr) == (1, True)
    assert cli("resume").returncode == 2
    assert "the fleet is paused already" in _done(cli("pause"))
    assert "given out again" in _done(cli("pause", "--off"))
    assert "the fleet is not paused" in _done(cli("pause", "--off"))


def test_a_verb_for_several_jobs_asks_once_and_tells_what_came_of_each(
    fleet: Any, cli: Any
) -> None:
    """By names and by selectors; what is refused of one stops no other, and is in the exit code."""
    names = [f"{model}-{mode}" for model in ("gru", "lstm") for mode in ("oracle", "realistic")]
    fleet.plan(*(
        f'model = "{model}"\nmode = "{mode}"\nrequire_cuda = true'
        for model, mode in (name.split("-") for name in names)
    ))  # fmt: skip
    fleet.coordinator()
    fleet.until("gru-oracle", "pending")
    some = cli("cancel", "gru-oracle", "nobody", "gru-oracle")
    assert (some.returncode, some.stdout) == (1, "1 job is cancelled: gru-oracle\n")
    assert some.stderr == ("error: no job has the name or id 'nobody'; `fleet list` shows them\n")
    code, asked = _answered("y", fleet, "cancel", "nobody", "gru-realistic", "lstm-oracle")
    assert code == 1
    assert "2 jobs (2 pending): gru-realistic, lstm-oracle\nCancel 2 jobs? [y/N]: " in asked
    assert "no job has the name or id 'nobody'" in asked
    rows = json.loads(_done(cli("requeue", "--model", "gru", "--yes", "--json")))
    assert sorted((row["name"], row["ok"], row["state"]) for row in rows) == [
        ("gru-oracle", True, "pending"), ("gru-realistic", True, "pending"),
    ]  # fmt: skip
    told = [row["name"] for row in json.loads(_done(cli("list", "--model", "gru", "--json")))]
    assert sorted(told) == ["gru-oracle", "gru-realistic"]
    shown = cli("show", "gru-oracle", "nobody", "--json")
    assert shown.returncode == 1
    assert [row["ok"] for row in json.loads(shown.stdout)] == [True, False]
    got = cli("get", "gru-oracle", "lstm-oracle", "--json")
    assert got.returncode == 1
    assert [row["job"] for row in json.loads(got.stdout)] == ["gru-oracle", "lstm-oracle"]
    assert "no completed gru jobs" in _done(cli("get", "--model", "gru", "--status", "completed"))
    assert _done(cli("logs", "gru-oracle", "lstm-oracle")).split("\n")[0] == "==> gru-oracle <=="
