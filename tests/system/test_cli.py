"""The command line as people and scripts use it: exit codes, JSON, what is printed."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from broker.protocol.messages import AskLogs
from broker.system.machine import new_id
from coordinator.ui.words import local
from tests.harness.fleet import ROOT, patient, wait_until
from tests.harness.verbs import Done, answered, process, started


@pytest.mark.words
@pytest.mark.smoke
def test_what_scripts_and_people_read_of_a_fleet(fleet: Any, cli: Any, short: str) -> None:
    """A finished and a pending job: the logs of the programs, rows, reasons, windows."""
    fleet.plan(short, 'model = "gru"\nmode = "oracle"\nrequire_cuda = true')
    coordinator = fleet.coordinator()
    agent = fleet.agent()
    fleet.until("gbt-oracle", "completed")
    wait_until(lambda: "attempt 1: completed on pi" in coordinator.said(), "its line in the log")
    wait_until(lambda: "nothing of it is left here" in agent.said(), "the agent says that it ended")
    for words in ("job gbt-oracle (", "its trainer is done", "MiB to hand over"):
        assert words in agent.said()

    rows = cli("list", "--json").json()
    assert [row["name"] for row in rows] == ["gru-oracle", "gbt-oracle"], (
        "what waits stands before what is over"
    )
    for name in ("created_at", "started_at", "finished_at"):
        assert datetime.fromisoformat(rows[1][name]).utcoffset() is not None
        assert rows[1][name].endswith("Z")
    pending = cli("list", "--status", "pending", "--json").json()
    assert [row["name"] for row in pending] == ["gru-oracle"]
    assert cli("show", "gbt-or", "--json").json()["events"][0]["event"] == "added"
    why = cli("why", "gru-oracle", "--json").json()
    assert why["hosts"] == [{"host": "pi", "reasons": [{"code": "no-cuda"}]}]
    status = cli("status", "--json").json()
    assert (status["jobs"]["completed"], status["jobs"]["pending"]) == (1, 1)
    assert status["hosts"] == {"online": 1, "offline": 0}
    logs = cli("logs", "gbt-oracle", "--json").json()
    assert logs["lines"][-1] == "done"
    told = cli("logs", "gbt-oracle", "--times", "-n", "1").stdout
    assert told == f"{local(logs['times'][-1])}  done\n"
    for words in ("status", "list", "workers", "why gru-oracle", "show gru-oracle"):
        shown = cli(*words.split()).stdout
        assert max(map(len, shown.splitlines())) <= 80, shown
        assert "\x1b" not in shown


def test_a_model_scores_telemetry_wherever_it_is(
    fleet: Any, cli: Any, short: str, data: Path, tmp_path: Path
) -> None:
    fleet.plan(short)
    fleet.coordinator()
    fleet.agent()
    fleet.until("gbt-oracle", "completed")
    raw = str(data.parent / "raw" / "simulated.parquet")
    by_job, by_folder = tmp_path / "job.csv", tmp_path / "folder.csv"
    at = {"FLEET_BROKER": fleet.broker_url, "FLEET_TOPIC_ROOT": fleet.root}
    done = process("predict", "gbt-oracle", "--raw", raw, "--out", str(by_job), environment=at)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f" windows scored: {by_job}\n")
    assert cli("get", "gbt-oracle", "-o", str(tmp_path)).returncode == 0
    folder = str(tmp_path / "gbt-oracle")
    done = process("predict", folder, "--raw", raw, "--out", str(by_folder), "--json")
    assert json.loads(done.stdout.splitlines()[-1])["files"] == [str(by_folder)]
    assert by_job.read_bytes() == by_folder.read_bytes()
    rows = pq.read_table(raw).slice(0, 70).to_pylist()  # a window of 60, and the next
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    for place in ("gbt-oracle", folder):
        done = process("predict", place, "--stream", environment=at, typed=lines)
        starts = [json.loads(line)["start"] for line in done.stdout.splitlines()]
        assert (done.returncode, starts) == (0, [0, 10]), done.stderr
    out = str(tmp_path / "x.csv")
    nobody = process("predict", "nobody", "--raw", raw, "--out", out, environment=at)
    assert (nobody.returncode, "no job has the name" in nobody.stderr) == (1, True)


def test_get_brings_the_model_home(fleet: Any, cli: Any, short: str, tmp_path: Path) -> None:
    fleet.plan(short, 'model = "gru"\nmode = "oracle"\nrequire_cuda = true')
    fleet.coordinator()
    fleet.agent()
    row = fleet.until("gbt-oracle", "completed")
    out = tmp_path / "out"
    done = cli("get", "gbt-oracle", "-o", os.path.relpath(out, ROOT))
    assert done.returncode == 0, done.stderr
    assert "  gbt_oracle_train.html" in done.stdout.splitlines()
    report = json.loads((out / "gbt-oracle" / "gbt_oracle_train.json").read_text("utf-8"))
    assert report["metrics"]["auroc"] == row["metrics"]["auroc"]
    assert [path.name for path in out.iterdir()] == ["gbt-oracle"]
    assert cli("get", "gbt-oracle", "-o", str(out)).returncode == 1
    told = json.loads(cli("get", "gbt-oracle", "-o", str(tmp_path / "too"), "--json").stdout)
    assert (told["name"], told["artifact_id"]) == ("gbt-oracle", row["artifact_id"])
    assert told["path"] == str(tmp_path / "too" / "gbt-oracle")
    files = sorted(path for path in (tmp_path / "too").rglob("*") if path.is_file())
    assert sorted(told["files"]) == [str(path) for path in files]
    page = (out / "gbt-oracle" / "gbt_oracle_train.html").read_bytes()
    pages = tmp_path / "pages"
    for asked, drawn in ((pages, pages / "gbt-oracle.html"), (pages / "a.html", pages / "a.html")):
        assert cli("report", "gbt-oracle", "-o", str(asked)).stdout == f"{drawn}\n"
        assert drawn.read_bytes() == page
    assert cli("report", "gbt-oracle", "--json").json() == report
    assert cli("report", "gru-oracle", "-o", str(out)).returncode == 1
    refused = cli("get", "gru-oracle", "-o", str(out))
    assert refused.returncode == 1
    assert "has no artifact" in refused.stderr


def test_logs_are_followed_in_json(fleet: Any, long: str) -> None:
    fleet.plan(long)
    fleet.coordinator()
    fleet.agent()
    fleet.until("gbt-oracle", "running")

    def newest() -> list[str]:
        asked = AskLogs(id=new_id(), job="gbt-oracle", lines=1)
        found: list[str] = fleet.client.ask(asked)["lines"]
        return found

    wait_until(lambda: newest() != [], "its first words")
    follow = ("logs", "gbt-oracle", "--follow", "--json")
    with started(*follow, environment=fleet.environment) as following:
        assert following.stdout is not None
        try:
            said = [json.loads(following.stdout.readline())["line"]]
            before = newest()
            wait_until(lambda: newest() != before, "more of its words")
            later = newest()[0]
            while later not in said:
                said.append(json.loads(following.stdout.readline())["line"])
            fleet.cancel("gbt-oracle")
            assert following.wait(60) == 0
        finally:
            following.kill()


def test_a_requeue_asks_on_a_terminal_before_a_result_is_set_aside(
    fleet: Any, cli: Any, short: str
) -> None:
    """With what there is to lose, and for how long; no leaves all as it is. It can be fetched."""
    fleet.plan(short)
    fleet.coordinator()
    fleet.agent()
    row = fleet.until("gbt-oracle", "completed")
    assert cli("drain", "pi").returncode == 0, "the next attempt is to begin when we say so"
    artifact = f"artifact {row['artifact_id'][:12]}"

    def at_a_terminal(word: str, *arguments: str) -> Done:
        return answered(word, *patient("requeue", *arguments), environment=fleet.environment)

    refused = at_a_terminal("n", "gbt-oracle")
    assert refused.returncode == 1
    for words in ("AUROC", artifact, "and kept for 30 days"):
        assert words in " ".join(refused.stderr.split())
    assert fleet.show("gbt-oracle")["state"] == "completed"
    done = cli("requeue", "gbt-oracle")
    assert artifact in done.stdout
    how = f"fleet get gbt-oracle --attempt {row['attempt']}"
    assert f"`{how}` fetches it, for 30 days" in done.stderr
    assert how in " ".join(cli("show", "gbt-oracle").stdout.split())
    got = cli(*how.split()[1:], "-o", str(fleet.tmp / "kept"), "--json")
    assert got.json()["artifact_id"] == row["artifact_id"]
    report = f"gbt-oracle-attempt-{row['attempt']}/gbt_oracle_train.json"
    assert (fleet.tmp / "kept" / report).is_file(), got.stdout
    missing = cli("get", "gbt-oracle", "--attempt", "99")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert f"there is one of attempt {row['attempt']}" in missing.stderr
    assert cli("resume", "pi").returncode == 0
    again = fleet.until("gbt-oracle", lambda it: it["state"] == "completed" and it["attempt"] == 2)
    assert at_a_terminal("y", "gbt-oracle").returncode == 0
    fleet.until("gbt-oracle", lambda row: row["attempt"] > again["attempt"])
    unasked = at_a_terminal("n", "gbt-oracle", "--yes")
    assert (unasked.returncode, "Requeue" in unasked.stderr) == (0, False)


def test_run_without_a_model_names_those_of_the_hosts(fleet: Any, cli: Any) -> None:
    fleet.plan()
    fleet.coordinator()
    fleet.agent()
    said = cli("run")
    assert said.returncode == 2
    (worker,) = cli("workers", "--json").json()
    models = ", ".join(sorted(worker["capability"]["trainers"]))
    assert f"Missing option '--model': the fleet's hosts have {models}\n" in said.stderr


def test_run_and_wait_says_what_it_waits_for(fleet: Any, cli: Any, short: str) -> None:
    fleet.plan(short)
    coordinator = fleet.coordinator()
    fleet.agent()
    fleet.until("gbt-oracle", "completed")
    job = ("--model", "gbt", "--mode", "oracle", "--seed", "9", "--require-cuda", "--name", "mine")
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with started("run", *job, "--wait", environment=fleet.environment, **streams) as waiting:
        assert waiting.stderr is not None
        try:
            said = [waiting.stderr.readline().strip() for _ in range(2)]
            coordinator.kill()
            assert "still trying" in waiting.stderr.readline()
            fleet.coordinator()
            assert "it is back" in waiting.stderr.readline()
            assert cli("cancel", "mine").returncode == 0
            assert waiting.wait(60) == 1
        finally:
            waiting.kill()
    assert said == [
        "it waits: the only known host cannot take it: needs CUDA; this host has none",
        "Ctrl-C stops waiting, the job stays",
    ]


def test_a_job_that_was_changed_leaves_one_of_its_name(fleet: Any, cli: Any, short: str) -> None:
    fleet.plan(short)
    fleet.coordinator()
    old = fleet.until("gbt-oracle", "pending")["job_id"][:12]
    fleet.plan(short + "\nseed = 7")
    fate = f"`fleet cancel {old}` ends it"
    assert fate in cli("plan", str(fleet.manifest)).stdout
    assert cli("reload").returncode == 0
    new = cli("show", "gbt-oracle", "--json").json()["job_id"][:12]
    assert new != old
    assert f"Namesake    {old}, pending, no longer in the manifest\n" in cli("show", "gbt-o").stdout
    shown = cli("show", old).stdout
    assert f"Namesake    {new}, pending\n" in shown
    assert "State       pending, priority 0, no longer in the manifest\n" in shown
    assert f"that with * is {old}" in cli("list").stdout
    assert f"Another job has this name: {old}, " in cli("why", "gbt-oracle").stdout
    for verb in ("logs", "cancel", "requeue"):
        said = cli(verb, "gbt-oracle").stderr
        assert f"by its name {new} was meant; another is so called: {old}, pending" in said, verb
    assert "so called" not in cli("cancel", old).stderr
