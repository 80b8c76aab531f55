"""Hosts that are wanted back, and a job beside the manifest: real programs, the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.fleet import patient
from tests.harness.verbs import answered


@pytest.fixture
def ask(fleet: Any) -> Any:
    """`ask(word, *arguments)`: a verb at a terminal, where `word` is typed."""
    return lambda word, *arguments: answered(
        word, *patient(*arguments), environment=fleet.environment
    )


@pytest.mark.slow
def test_a_job_moves_away_from_a_host_that_is_wanted_back(fleet: Any, cli: Any, long: str) -> None:
    """By an operator's drain, then by the owner on the machine, whom no operator overrules."""
    fleet.plan(long)
    fleet.coordinator()
    fleet.agent("one")
    first = fleet.until("gbt-oracle", "running")
    assert first["host"] == "one"
    fleet.agent("two")
    assert "it gives back gbt-oracle" in cli("drain", "one", "--now").text()
    second = fleet.until("gbt-oracle", lambda row: row["state"] == "running" and row["attempt"] > 1)
    assert second["host"] == "two"
    assert "it was drained by operator:local at " in cli("resume", "one").text()
    state = str(fleet.tmp / "two")
    assert "takes no jobs until " in cli("snooze", "--here", "3h", "--now", "--state", state).text()
    third = fleet.until("gbt-oracle", lambda row: row["state"] == "running" and row["attempt"] > 2)
    assert third["host"] == "one"
    assert "two: takes no jobs now: snoozed until " in cli("workers").text()
    refused = cli("resume", "two")
    assert refused.returncode == 1
    assert "by its owner" in refused.stderr
    told = [row["event"] for row in cli("events", "--host", "one", "--json").json()]
    assert {"drain", "resume", "released"} <= {*told}


# Runs until it is ended, keeps no checkpoint.
WAITS = """[trainers.waits]
telemetry = true
command = [{python}, "-c", "import time; print(flush=True); time.sleep(600)"]
schema = {{ type = "object", properties = {{}} }}
"""


@pytest.mark.slow
def test_whoever_would_lose_work_is_asked_before_it_is_given_back(
    fleet: Any, cli: Any, ask: Any
) -> None:
    own = WAITS.format(python=json.dumps(sys.executable))
    fleet.plan('model = "waits"\nmode = "oracle"')
    fleet.coordinator(more=own)
    fleet.agent("pi", more=own)
    job = fleet.until("waits-oracle", "running")["job_id"]
    here = ("snooze", "--here", "--now", "--state", str(fleet.tmp / "pi"))
    told = ask("n", *here)
    assert (told.returncode, f"job {job[:12]} keeps no checkpoint" in told.stderr) == (1, True)
    assert not (fleet.tmp / "pi" / "snooze").exists()
    for verb in (("drain", "pi", "--now"), ("snooze", "pi", "3h", "--now")):
        told = ask("n", *verb)
        assert (told.returncode, "keeps no checkpoint" in told.stderr) == (1, True)
    assert fleet.show("waits-oracle")["state"] == "running"
    assert "it finishes waits-oracle (--now has it given back)" in cli("drain", "pi").text()
    cli("resume", "pi").text()
    told = ask("y", *here)
    assert told.returncode == 0, told.stderr
    fleet.until("waits-oracle", "pending")


@pytest.mark.words
@pytest.mark.smoke
def test_one_job_beside_the_manifest_is_waited_for_and_fetched(
    fleet: Any, cli: Any, tmp_path: Path
) -> None:
    fleet.plan()
    fleet.coordinator()
    agent = fleet.agent()
    job = ("run", "--model", "gbt", "--mode", "oracle", "-H", "epochs=3", "--n-resamples", "20")
    wrong = cli(*job, "-H", "epoch=3", "--min-ram-gib", "-1")
    assert wrong.returncode == 1
    assert "-H epoch: unknown parameter" in wrong.stderr
    assert "--min-ram-gib: must be more than 0" in wrong.stderr
    out = tmp_path / "out"
    said = cli(*job, "--name", "mine", "--get", str(out)).text()
    assert "mine completed on pi: trained for " in said
    assert "AUROC 0." in said
    assert (out / "mine" / "gbt_oracle_train.json").is_file()
    cli("reload").text()
    again = cli(*job, "--json").json()
    assert (again["name"], again["state"], again["added"]) == ("mine", "completed", False)
    row = cli(*job, "--wait", "--json").json()
    assert (row["state"], row["next"]) == ("completed", "fleet get mine")
    assert row["score"] == {"name": "auroc", "value": row["metrics"]["auroc"]}
    assert row["ran_s"] > 0
    failed = cli(*job, "--name", "bad", "--seed", "7", "--train-host", "nobody", "--wait")
    assert failed.returncode == 1
    assert "nobody" in failed.stderr
    none = ("--retries", "0", "--n-resamples", "0", "--stall-timeout-s", "900", "--on-lost", "keep")
    cli("run", "--model", "gru", "--mode", "oracle", "--name", "once", *none).text()
    spec = cli("show", "once", "--json").json()["spec"]
    said_so = [spec[key] for key in ("retries", "n_resamples", "stall_timeout_s", "on_lost")]
    assert said_so == [0, 0, 900.0, "keep"]
    agent.stop()
    assert "the agent of pi has ended" in agent.said()


def test_a_parameter_is_read_by_its_kind_and_an_input_by_its_name(fleet: Any, cli: Any) -> None:
    fleet.plan()
    fleet.coordinator()
    folder = fleet.tmp / "tell"
    folder.mkdir()
    (folder / "program.toml").write_text(
        'name = "tell"\ncommand = ["sh", "run.sh"]\n[parameters]\nmust = { type = "string" }\n'
        'lr = { type = "number", maximum = 1 }\n[inputs]\nweights = ""\n'
    )
    first = ("run", str(folder), "--must", "3", "--lr", "0.5", "--name", "first")
    cli(*first).text()
    assert cli("show", "first", "--json").json()["spec"]["hyper"] == {"must": "3", "lr": 0.5}
    wrong = cli("run", "tell", "--must", "3", "--lr", "7", "--input", "wieghts=first", "--json")
    assert [one["key"] for one in wrong.json(1)["errors"]] == ["parameters.lr", "inputs.wieghts"]
    cli("run", "tell", "--must", "4", "--lr=1", "--input", "weights=first").text()


@pytest.mark.words
def test_a_job_beside_the_manifest_comes_after_others(fleet: Any, cli: Any) -> None:
    """Which are named as everywhere; `why`, `show`, `list` and the plan tell of them."""
    fleet.plan()
    fleet.coordinator()
    job = ("run", "--model", "gbt", "--mode", "oracle")
    first = cli(*job, "--name", "first", "--json").json()["job_id"]
    cli(*job, "--seed", "2", "--name", "next", "--after", "fir").text()
    cli(*job, "--seed", "3", "--name", "last", "--after", "next", "--after", first[:10]).text()
    wrong = cli(*job, "--seed", "4", "--after", "nobody", "--input", "w=first")
    assert wrong.returncode == 1
    assert "--after: no job has the name or id 'nobody'" in wrong.stderr
    assert "--input w: only a program takes inputs" in wrong.stderr
    unpaired = cli(*job, "--input", "w")
    assert (unpaired.returncode, "write NAME=JOB" in unpaired.stderr) == (2, True)
    assert "After       next (pending), first (pending)" in cli("show", "last").text()
    assert "next is pending: it waits for first, which is pending" in cli("why", "next").text()
    assert "awaits first" in cli("list").text()
    cli("cancel", "first", "--yes").text()
    assert "`fleet requeue first` brings it back" in cli("list").text()
    plan = cli("plan").text()
    assert "2 jobs behind jobs that do not go on:" in plan
    assert "waits for first, which was cancelled" in plan
    assert cli("why", "last", "--json").json()["predecessor_count"] == 2


def test_all_that_is_pending_is_cancelled_only_when_somebody_says_yes(
    fleet: Any, cli: Any, ask: Any, tmp_path: Path
) -> None:
    """Without a terminal nobody can be asked; a paused fleet keeps them pending, and says so."""
    fleet.plan()
    fleet.coordinator()
    cli("pause").text()
    for seed in ("1", "2"):
        cli("run", "--model", "gbt", "--mode", "oracle", "--seed", seed).text()
        unsaid = cli("cancel", "--status", "pending")
        assert (unsaid.returncode, f"{seed} job" in unsaid.stderr) == (2, True)
        assert "say --yes" in unsaid.stderr
    status = cli("status").text()
    assert "PAUSED" in status.splitlines()[0]
    assert "No host is known, so nothing can start" in status
    told = ask("n", "cancel", "--status", "pending")
    assert (told.returncode, "nothing was changed" in told.stderr) == (1, True)
    named = tmp_path / "named.toml"
    named.write_text(
        'schema_version = 1\n[[jobs]]\nmodel = "gbt"\nmode = "oracle"\nallowed_hosts = ["lab"]\n'
    )
    checked = cli("check", str(named)).text()
    assert "names of hosts were not checked: no host is known\n" in checked
    assert "2 jobs are cancelled" in cli("cancel", "--status", "pending", "--yes").text()
    assert "no pending jobs" in cli("cancel", "--status", "pending").text()
    assert cli("cancel", "x", "--status", "pending").returncode == 2
    assert cli("cancel").returncode == 2
    assert cli("snooze", "pi").returncode == 2
    assert cli("snooze", "pi", "soon").returncode == 2
    dashless = cli("snooze", "here", "1h")
    assert (dashless.returncode, "`fleet snooze --here 1h`" in dashless.stderr) == (1, True)
    assert cli("resume").returncode == 2
    assert "the fleet is paused already" in cli("pause").text()
    assert "given out again" in cli("pause", "--off").text()
    assert "the fleet is not paused" in cli("pause", "--off").text()


def test_a_verb_for_several_jobs_asks_once_and_tells_what_came_of_each(
    fleet: Any, cli: Any, ask: Any
) -> None:
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
    told = ask("y", "cancel", "nobody", "gru-realistic", "lstm-oracle")
    assert told.returncode == 1
    assert "Cancel 2 jobs?" in told.stderr
    assert "'nobody'" in told.stderr
    rows = cli("requeue", "--model", "gru", "--yes", "--json").json()
    assert sorted((row["name"], row["ok"], row["state"]) for row in rows) == [
        ("gru-oracle", True, "pending"), ("gru-realistic", True, "pending"),
    ]  # fmt: skip
    listed = [row["name"] for row in cli("list", "--model", "gru", "--json").json()]
    assert sorted(listed) == ["gru-oracle", "gru-realistic"]
    shown = cli("show", "gru-oracle", "nobody", "--json")
    assert [row["ok"] for row in shown.json(1)] == [True, False]
    got = cli("get", "gru-oracle", "lstm-oracle", "--json")
    assert [row["job"] for row in got.json(1)] == ["gru-oracle", "lstm-oracle"]
    assert "no completed gru jobs" in cli("get", "--model", "gru", "--status", "completed").text()
    assert cli("logs", "gru-oracle", "lstm-oracle").text().split("\n")[0] == "==> gru-oracle <=="
