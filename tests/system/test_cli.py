"""The command line as people and scripts use it: exit codes, JSON, what is printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from broker.protocol.messages import AskLogs
from broker.system.machine import new_id
from coordinator.ui.words import local
from tests.harness.fleet import ROOT, patient, wait_until

ROW = {
    "job_id", "name", "model", "mode", "state", "priority", "attempt", "host", "error",
    "artifact_id", "metrics", "created_at", "started_at", "finished_at",
}  # fmt: skip


def _run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A verb in a process of its own."""
    bare = {key: one for key, one in os.environ.items() if not key.startswith("FLEET_")}
    return subprocess.run(
        [sys.executable, "-m", "coordinator.cli", *arguments],
        capture_output=True, text=True, timeout=60, env=bare | env, cwd=ROOT, check=False,
    )  # fmt: skip


@pytest.mark.smoke
def test_what_scripts_read_is_as_documented(fleet: Any, cli: Any, short: str) -> None:
    """The contracts of every reading command, on a fleet with a finished and a pending job."""
    fleet.plan(short, 'model = "gru"\nmode = "oracle"\nrequire_cuda = true')
    coordinator = fleet.coordinator()
    agent = fleet.agent()
    fleet.until("gbt-oracle", "completed")
    wait_until(lambda: "attempt 1: completed on pi" in coordinator.said(), "its line in the log")
    assert "attempt 1: started on pi" in coordinator.said()
    wait_until(lambda: "nothing of it is left here" in agent.said(), "the agent says that it ended")
    assert "job gbt-oracle (" in agent.said()
    assert "its trainer is done" in agent.said()
    assert "MiB to hand over" in agent.said()

    rows = cli("list", "--json").json()
    assert [row["name"] for row in rows] == ["gru-oracle", "gbt-oracle"], (
        "what waits stands before what is over"
    )
    rows.reverse()
    assert set(rows[0]) >= ROW
    for name in ("created_at", "started_at", "finished_at"):
        assert datetime.fromisoformat(rows[0][name]).utcoffset() is not None
        assert rows[0][name].endswith("Z")
    assert [row["name"] for row in cli("list", "--status", "pending", "--json").json()] == [
        "gru-oracle"
    ]
    shown = cli("show", "gbt-or", "--json").json()
    assert set(shown) >= ROW | {"spec", "events"}
    assert shown["events"][0]["event"] == "added"
    (worker,) = cli("workers", "--json").json()
    assert {"host", "status", "capability", "policy", "jobs", "last_seen"} <= set(worker)
    assert (worker["host"], worker["status"]) == ("pi", "online")
    why = cli("why", "gru-oracle", "--json").json()
    assert why["hosts"] == [{"host": "pi", "eligible": False, "reasons": [{"code": "no-cuda"}]}]
    status = cli("status", "--json").json()
    assert (status["jobs"]["completed"], status["jobs"]["pending"]) == (1, 1)
    assert status["hosts"] == {"online": 1, "offline": 0}
    assert {"coordinator", "broker"} <= set(status)
    logs = cli("logs", "gbt-oracle", "--json").json()
    assert logs["lines"][-1] == "done"
    assert len(logs["times"]) == len(logs["lines"])
    for words in (["status"], ["list"], ["workers"], ["why", "gru-oracle"], ["show", "gru-oracle"]):
        shown = cli(*words).stdout
        assert max(map(len, shown.splitlines())) <= 80, shown
        assert "\x1b" not in shown
    told = cli("logs", "gbt-oracle", "--times", "-n", "1").stdout
    assert told == f"{local(logs['times'][-1])}  done\n"


def test_a_model_scores_telemetry_wherever_it_is(
    fleet: Any, cli: Any, short: str, data: Path, tmp_path: Path
) -> None:
    """Fetched for that, or from the folder that `get` has brought: the scores are the same."""
    fleet.plan(short)
    fleet.coordinator()
    fleet.agent()
    fleet.until("gbt-oracle", "completed")
    raw = str(data.parent / "raw" / "simulated.parquet")
    by_job, by_folder = tmp_path / "job.csv", tmp_path / "folder.csv"
    at = {"FLEET_BROKER": fleet.broker_url, "FLEET_TOPIC_ROOT": fleet.root}
    done = _run("predict", "gbt-oracle", "--raw", raw, "--out", str(by_job), **at)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f" windows scored: {by_job}\n")
    assert cli("get", "gbt-oracle", "-o", str(tmp_path)).returncode == 0
    folder = str(tmp_path / "gbt-oracle")
    done = _run("predict", folder, "--raw", raw, "--out", str(by_folder), "--json")
    assert json.loads(done.stdout.splitlines()[-1])["files"] == [str(by_folder)]
    assert by_job.read_bytes() == by_folder.read_bytes()
    nobody = _run("predict", "nobody", "--raw", raw, "--out", str(tmp_path / "x.csv"), **at)
    assert (nobody.returncode, "no job has the name" in nobody.stderr) == (1, True)


def test_get_brings_the_model_home(fleet: Any, cli: Any, short: str, tmp_path: Path) -> None:
    """Fetched, verified, unpacked; a second time it does not overwrite; a job without is told."""
    fleet.plan(short, 'model = "gru"\nmode = "oracle"\nrequire_cuda = true')
    fleet.coordinator()
    fleet.agent()
    row = fleet.until("gbt-oracle", "completed")
    out = tmp_path / "out"
    done = cli("get", "gbt-oracle", "-o", str(out))
    assert done.returncode == 0, done.stderr
    report = json.loads((out / "gbt-oracle" / "gbt_oracle_train.json").read_text("utf-8"))
    assert report["metrics"]["auroc"] == row["metrics"]["auroc"]
    assert [path.name for path in out.iterdir()] == ["gbt-oracle"]
    assert cli("get", "gbt-oracle", "-o", str(out)).returncode == 1
    told = json.loads(cli("get", "gbt-oracle", "-o", str(tmp_path / "too"), "--json").stdout)
    assert (told["name"], told["artifact_id"]) == ("gbt-oracle", row["artifact_id"])
    assert told["path"] == str(tmp_path / "too" / "gbt-oracle")
    files = sorted(path for path in (tmp_path / "too").rglob("*") if path.is_file())
    assert sorted(told["files"]) == [str(path) for path in files]
    refused = cli("get", "gru-oracle", "-o", str(out))
    assert refused.returncode == 1
    assert "has no artifact" in refused.stderr


def test_logs_are_followed_in_json(fleet: Any, long: str) -> None:
    """An object a line, also of what is said later; it ends with the job."""
    fleet.plan(long)
    fleet.coordinator()
    fleet.agent()
    fleet.until("gbt-oracle", "running")

    def newest() -> list[str]:
        asked = AskLogs(id=new_id(), job="gbt-oracle", lines=1)
        found: list[str] = fleet.client.ask(asked)["lines"]
        return found

    wait_until(lambda: newest() != [], "its first words")
    with subprocess.Popen(
        [sys.executable, "-m", "coordinator.cli", "logs", "gbt-oracle", "--follow", "--json"],
        stdout=subprocess.PIPE, text=True, cwd=ROOT, env=fleet.environment,
    ) as following:  # fmt: skip
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


@pytest.mark.skipif(sys.platform == "win32", reason="it has no pseudo terminals")
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
    refused = _at_a_terminal(fleet, "n\n", "requeue", "gbt-oracle")
    assert refused.returncode == 1
    assert "AUROC" in refused.stderr
    assert artifact in refused.stderr
    assert "and kept for 30 days" in " ".join(refused.stderr.split())
    assert fleet.show("gbt-oracle")["state"] == "completed"
    done = cli("requeue", "gbt-oracle")
    assert artifact in done.stdout
    how = f"fleet get gbt-oracle --attempt {row['attempt']}"
    assert f"`{how}` fetches it, for 30 days" in done.stderr
    assert how in " ".join(cli("show", "gbt-oracle").stdout.split())
    got = cli(*how.split()[1:], "-o", str(fleet.tmp / "kept"), "--json")
    assert json.loads(got.stdout)["artifact_id"] == row["artifact_id"]
    report = f"gbt-oracle-attempt-{row['attempt']}/gbt_oracle_train.json"
    assert (fleet.tmp / "kept" / report).is_file(), got.stdout
    missing = cli("get", "gbt-oracle", "--attempt", "99")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert f"there is one of attempt {row['attempt']}" in missing.stderr
    events = fleet.show("gbt-oracle")["events"]
    (why,) = [event["why"] for event in events if event["event"] == "requeued"]
    assert why["set_aside_artifact"] == row["artifact_id"]
    assert cli("resume", "pi").returncode == 0
    again = fleet.until("gbt-oracle", lambda it: it["state"] == "completed" and it["attempt"] == 2)
    agreed = _at_a_terminal(fleet, "y\n", "requeue", "gbt-oracle")
    assert agreed.returncode == 0, agreed.stderr
    fleet.until("gbt-oracle", lambda row: row["attempt"] > again["attempt"])
    unasked = _at_a_terminal(fleet, "n\n", "requeue", "gbt-oracle", "--yes")
    assert unasked.returncode == 0, unasked.stderr
    assert "Requeue" not in unasked.stderr


def _at_a_terminal(
    fleet: Any, typed: str, *arguments: str
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    ours, theirs = os.openpty()
    try:
        os.write(ours, typed.encode())
        environment = {**os.environ, "FLEET_BROKER": fleet.broker_url, "COLUMNS": "80"}
        return subprocess.run(
            [sys.executable, "-m", "coordinator.cli", *patient(*arguments)],
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=60,
            env=environment | {"FLEET_TOPIC_ROOT": fleet.root},
            cwd=ROOT,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)


def test_run_without_a_model_names_those_of_the_hosts(fleet: Any, cli: Any, short: str) -> None:
    """And what came of a job is the last word of a wait, in fields as well."""
    fleet.plan(short)
    fleet.coordinator()
    fleet.agent()
    fleet.until("gbt-oracle", "completed")
    said = cli("run")
    assert said.returncode == 2
    (worker,) = cli("workers", "--json").json()
    models = ", ".join(sorted(worker["capability"]["trainers"]))
    assert f"Missing option '--model': the fleet's hosts have {models}\n" in said.stderr
    job = ("--model", "gbt", "--mode", "oracle", "-H", "epochs=3", "--seed", "5")
    again = cli("run", *job, "--wait", "--name", "again")
    assert again.returncode == 0, again.stderr
    last = again.stdout.splitlines()[-1]
    assert last.startswith("again completed on pi: trained for "), again.stdout
    assert last.endswith("; `fleet get again` fetches it")
    assert "AUROC 0." in last
    row = cli("run", *job, "--wait", "--name", "again", "--json").json()
    assert (row["state"], row["next"]) == ("completed", "fleet get again")
    assert row["score"] == {"name": "auroc", "value": row["metrics"]["auroc"]}
    assert row["ran_s"] > 0


def test_run_and_wait_says_what_it_waits_for(fleet: Any, cli: Any, short: str) -> None:
    """The reason, that the job stays when the waiting is ended, and that nobody answers."""
    fleet.plan(short)
    coordinator = fleet.coordinator()
    fleet.agent()
    fleet.until("gbt-oracle", "completed")
    job = ("--model", "gbt", "--mode", "oracle", "--seed", "9", "--require-cuda", "--name", "mine")
    with subprocess.Popen(
        [sys.executable, "-m", "coordinator.cli", "run", *job, "--wait"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "FLEET_BROKER": fleet.broker_url, "FLEET_TOPIC_ROOT": fleet.root},
        cwd=ROOT,
    ) as waiting:
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


def test_a_plan_says_that_its_manifest_has_changed(fleet: Any, cli: Any, short: str) -> None:
    """A reload would change something; without a change not a word."""
    fleet.plan(short)
    fleet.coordinator()
    fleet.until("gbt-oracle", "pending")
    before = cli("plan")
    assert (before.returncode, before.stderr) == (0, "")
    assert before.stdout.splitlines()[0].strip()
    fleet.plan(short + "\npriority = 7")
    after = cli("plan")
    assert f"`fleet plan {fleet.manifest}`" in after.stderr
    # The coordinator looks at the file once a second.
    wait_until(
        lambda: "\n             it was changed at 20" in cli("status").stdout,
        "the coordinator has seen that it changed",
    )
    assert cli("plan", "--json").json()["warnings"]
    fleet.manifest.write_text("schema_version = 2\n", "utf-8")
    assert f"`fleet check {fleet.manifest}`" in cli("plan").stderr
    assert cli("reload").returncode == 1
