"""What becomes of jobs, with the real programs on the real embedded broker."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from broker.protocol.messages import AskAttempts
from broker.system.machine import new_id
from coordinator.cli.get import fetch
from coordinator.client.contact import NotDone
from tests.harness.processes import is_over

AWAY_S = 5.0


def _trainers(fleet: Any) -> list[psutil.Process]:
    """The trainers that run for this fleet."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if "agent.trainer.run" in line and str(fleet.tmp) in line:
            found.append(process)
    return found


@pytest.mark.smoke
def test_a_job_is_trained_and_its_artifact_comes_home(
    fleet: Any, short: str, wait_for: Any
) -> None:
    """assign, train, bundle, upload, verify, store, complete; and the history tells it."""
    fleet.plan(short)
    fleet.coordinator()
    fleet.agent()
    row = fleet.until("gbt-oracle", "completed")

    folder = fleet.tmp / "coordinator" / "models" / "gbt_oracle" / row["artifact_id"]
    bundle = (folder / "bundle.tar.zst").read_bytes()
    assert hashlib.sha256(bundle).hexdigest() == row["artifact_id"]
    assert row["host"] == "pi"
    assert 0.0 <= row["metrics"]["auroc"] <= 1.0
    index = fleet.tmp / "coordinator" / "models" / "index.jsonl"
    wait_for(index.exists, "the index, which follows what is durable already")
    assert json.loads(index.read_text("utf-8"))["artifact_id"] == row["artifact_id"]
    assert fleet.events("gbt-oracle") == ["added", "assigned", "started", "completed"]
    for folder in (fleet.tmp / "pi" / "spool", fleet.tmp / "pi" / "work"):
        wait_for(lambda folder=folder: not list(folder.iterdir()), f"{folder} to be emptied")


def test_a_training_leaves_nothing_in_the_home_of_who_runs_the_agent(
    fleet: Any, short: str, tmp_path: Path
) -> None:
    """Nor do the programs around it; the report is there, with its drawings."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("MPLCONFIGDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        fleet.environment.pop(name, None)
    fleet.environment |= {"HOME": str(home), "USERPROFILE": str(home)}
    fleet.plan(short)
    fleet.coordinator()
    fleet.agent()
    fleet.until("gbt-oracle", "completed")
    got = fetch(fleet.client, "gbt-oracle", tmp_path / "got")
    assert "gbt_oracle_train.html" in [path.name for path in got.files]
    assert list(home.iterdir()) == []


def test_the_same_job_gives_the_same_artifact(fleet: Any, short: str, data: Path) -> None:
    """Requeued, it is trained again and comes out bit for bit the same."""
    fleet.plan(short)
    fleet.coordinator()
    fleet.agent()
    first = fleet.until("gbt-oracle", "completed")
    fleet.requeue("gbt-oracle")
    again = fleet.until(
        "gbt-oracle", lambda row: row["state"] == "completed" and row["attempt"] == 2
    )
    assert again["artifact_id"] == first["artifact_id"]


def test_cancel_stops_a_running_trainer(fleet: Any, long: str, wait_for: Any) -> None:
    """The job is cancelled at once, its process is gone soon, and it leaves nothing behind."""
    fleet.plan(long)
    fleet.coordinator()
    fleet.agent()
    fleet.until("gbt-oracle", "running")
    wait_for(lambda: len(_trainers(fleet)) == 1, "the trainer's process")

    assert fleet.cancel("gbt-oracle")["state"] == "cancelled"
    wait_for(lambda: not _trainers(fleet), "the trainer to end")
    wait_for(lambda: not list((fleet.tmp / "pi" / "work").iterdir()), "the work folder to go")
    with pytest.raises(NotDone, match="is cancelled already"):
        fleet.cancel("gbt-oracle")


def test_requeue_of_a_running_job_voids_the_old_attempt(
    fleet: Any, long: str, wait_for: Any
) -> None:
    """The old attempt is stopped, a new one starts, never both at once."""
    fleet.plan(long)
    fleet.coordinator()
    fleet.agent()
    fleet.until("gbt-oracle", "running")
    wait_for(lambda: len(_trainers(fleet)) == 1, "the trainer's process")
    (old,) = _trainers(fleet)

    fleet.requeue("gbt-oracle")
    wait_for(lambda: is_over(old), "the old trainer")
    row = fleet.until("gbt-oracle", lambda row: row["state"] == "running" and row["attempt"] > 1)
    assert row["attempt"] >= 2
    wait_for(lambda: len(_trainers(fleet)) == 1, "the new trainer's process")


def test_a_failed_job_says_what_the_trainer_said(fleet: Any, wait_for: Any) -> None:
    """A training host that the data does not have: the trainer's own words are the error."""
    fleet.plan('model = "gbt"\nmode = "oracle"\ntrain_hosts = ["nowhere"]')
    fleet.coordinator()
    fleet.agent()
    row = fleet.until("gbt-oracle", "failed")
    assert "nowhere" in row["error"]
    fleet.requeue("gbt-oracle")
    fleet.until("gbt-oracle", lambda row: row["state"] == "failed" and row["attempt"] == 2)


def test_reload_adds_changes_and_orphans(fleet: Any, short: str) -> None:
    """A reload is idempotent, keeps what has run, and a faulty file changes nothing."""
    other = 'name = "later"\nmodel = "gbt"\nmode = "realistic"\nrequire_cuda = true'
    fleet.plan(short, other)
    fleet.coordinator()
    fleet.agent()
    done = fleet.until("gbt-oracle", "completed")

    fleet.plan(short + "\npriority = 7", 'name = "new"\nmodel = "mlp"\nmode = "oracle"\n'
               "require_cuda = true")  # fmt: skip
    counts = fleet.reload()
    assert {what: count for what, count in counts["changes"].items() if count} == {
        "added": 1, "changed": 1, "orphaned": 1
    }  # fmt: skip
    assert fleet.reload()["changes"] == dict.fromkeys(counts["changes"], 0) | {"unchanged": 2}
    kept = fleet.show("gbt-oracle")
    assert (kept["state"], kept["priority"]) == ("completed", 7)
    assert kept["artifact_id"] == done["artifact_id"]
    assert fleet.show("later")["in_plan"] is False

    fleet.manifest.write_text("schema_version = 1\n[[jobs]]\nmodel = 'gbtt'\nmode = 'oracle'\n")
    with pytest.raises(NotDone) as refusal:
        fleet.reload()
    assert "did you mean 'gbt'" in refusal.value.data["errors"][0]["message"]
    assert fleet.show("new")["in_plan"] is True


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")
def test_sighup_reloads(fleet: Any) -> None:
    """As daemons do."""
    fleet.plan('model = "gbt"\nmode = "oracle"\nrequire_cuda = true')
    coordinator = fleet.coordinator()
    fleet.until("gbt-oracle", "pending")
    fleet.plan('name = "fresh"\nmodel = "gbt"\nmode = "oracle"\nseed = 5\nrequire_cuda = true')
    coordinator.process.send_signal(signal.SIGHUP)
    fleet.until("fresh", "pending")


@pytest.mark.slow
def test_a_lease_that_nobody_renews_gives_the_job_to_another(
    fleet: Any, long: str, wait_for: Any
) -> None:
    """A frozen agent loses its job; when it thaws, it is told to stop."""
    fleet.plan(long)
    fleet.coordinator(stale_after_s=2.0)
    frozen = fleet.agent("frozen")
    fleet.until("gbt-oracle", "running")
    wait_for(lambda: len(_trainers(fleet)) == 1, "the trainer's process")
    (old,) = _trainers(fleet)
    frozen.process.send_signal(signal.SIGSTOP)
    try:
        fleet.agent("other")
        row = fleet.until(
            "gbt-oracle", lambda row: row["state"] == "running" and row["host"] == "other"
        )
        # The frozen host is online as far as anybody knows, and may be asked once more in between.
        assert row["attempt"] >= 2
    finally:
        frozen.process.send_signal(signal.SIGCONT)
    wait_for(lambda: is_over(old), "the first trainer to be stopped")
    assert "lost" in fleet.events("gbt-oracle")
    assert fleet.show("gbt-oracle")["host"] == "other"


def test_a_clean_shutdown_releases_the_job_at_no_cost(fleet: Any, long: str, wait_for: Any) -> None:
    """SIGTERM to the agent: its trainer ends, the job is pending again, the host says goodbye."""
    fleet.plan(long)
    fleet.coordinator()
    agent = fleet.agent()
    fleet.until("gbt-oracle", "running")
    wait_for(lambda: len(_trainers(fleet)) == 1, "the trainer's process")
    assert agent.end(signal.SIGTERM) == 0
    assert not _trainers(fleet)
    row = fleet.until("gbt-oracle", "pending")
    assert row["attempt"] == 1
    assert fleet.events("gbt-oracle")[-1] == "released"
    reasons = fleet.why("gbt-oracle")["hosts"][0]["reasons"]
    assert {"code": "offline", "presence": "left"} in reasons


def test_a_killed_agent_loses_its_job_when_it_comes_back(
    fleet: Any, long: str, wait_for: Any
) -> None:
    """Its orphaned trainer is ended by identity, and the job starts again with a new attempt."""
    fleet.plan(long)
    fleet.coordinator()
    agent = fleet.agent()
    fleet.until("gbt-oracle", "running")
    wait_for(lambda: len(_trainers(fleet)) == 1, "the trainer's process")
    (orphan,) = _trainers(fleet)
    agent.kill()
    fleet.agent()
    row = fleet.until("gbt-oracle", lambda row: row["state"] == "running" and row["attempt"] == 2)
    assert row["host"] == "pi"
    assert is_over(orphan)
    assert "lost" in fleet.events("gbt-oracle")


def test_a_killed_coordinator_goes_on_with_what_its_agents_are_doing(
    fleet: Any, wait_for: Any
) -> None:
    """SIGKILL in mid-training: the trainer is not disturbed, and its result is taken."""
    fleet.plan('model = "mlp"\nmode = "oracle"\nhyper.epochs = 20\nn_resamples = 20')
    coordinator = fleet.coordinator()
    fleet.agent()
    fleet.until("mlp-oracle", "running")
    wait_for(lambda: len(_trainers(fleet)) == 1, "the trainer's process")
    coordinator.kill()
    fleet.coordinator()
    row = fleet.until("mlp-oracle", "completed")
    assert row["attempt"] == 1
    assert fleet.events("mlp-oracle").count("assigned") == 1


def test_how_long_a_host_was_away_after_training_is_no_training(fleet: Any, wait_for: Any) -> None:
    """Its report waits in the spool, over its agent's restart; `fleet stats` counts the trainer."""
    fleet.plan('model = "mlp"\nmode = "oracle"\nhyper.epochs = 20\nn_resamples = 20')
    coordinator = fleet.coordinator()
    agent = fleet.agent()
    fleet.until("mlp-oracle", "running")
    coordinator.kill()
    spool = fleet.tmp / "pi" / "spool"
    wait_for(lambda: any(spool.glob("*.json")), "the end of the training")
    trained_s = time.monotonic()
    agent.kill()
    wait_for(lambda: time.monotonic() > trained_s + AWAY_S, "nobody: the host is away")
    fleet.coordinator()
    fleet.agent()
    row = fleet.until("mlp-oracle", "completed")
    page = fleet.client.ask(AskAttempts(id=new_id()))["attempts"]
    assert sum(one["s"] or 0.0 for one in page) == row["ran_s"]
    assert [one["whole"] for one in page if one["end"] == "completed"] == [True]
    at = {one["event"]: one["at"] for one in fleet.show("mlp-oracle")["events"]}
    known = datetime.fromisoformat(at["completed"]) - datetime.fromisoformat(at["started"])
    assert 0.0 < row["ran_s"] <= known.total_seconds() - AWAY_S
    assert row["finished_at"] == at["completed"]


@pytest.mark.smoke
def test_a_broker_that_is_killed_and_started_again_loses_nothing(
    tmp_path: Path, data: Path, new_broker: Any, make_fleet: Any
) -> None:
    """Everything retained is forgotten; the job is trained once, and its artifact comes home."""
    broker = new_broker("embedded")
    fleet = make_fleet(tmp_path, broker.url, data)
    fleet.plan('model = "mlp"\nmode = "oracle"\nhyper.epochs = 20\nn_resamples = 20')
    fleet.coordinator()
    fleet.agent()
    fleet.until("mlp-oracle", "running")
    broker.end(signal.SIGKILL)
    broker.start()
    row = fleet.until("mlp-oracle", "completed")
    assert row["attempt"] == 1


def test_a_second_agent_or_coordinator_on_one_folder_is_refused(
    fleet: Any, long: str, wait_for: Any
) -> None:
    """It would end the trainers of the first; the error says who is there, and what to do."""
    fleet.plan(long)
    coordinator = fleet.coordinator()
    agent = fleet.agent()
    fleet.until("gbt-oracle", "running")
    wait_for(lambda: len(_trainers(fleet)) == 1, "the trainer's process")
    for program, name in ((coordinator, "coordinator"), (agent, "agent")):
        second = subprocess.run(
            [sys.executable, "-m", program.module, *program.arguments],
            capture_output=True, text=True, timeout=60, env=program.environment, check=False,
        )  # fmt: skip
        assert second.returncode == 2
        assert f"another {name} (process {program.process.pid})" in second.stderr
    assert len(_trainers(fleet)) == 1


def test_nothing_of_the_fleet_is_in_a_trainers_environment(
    fleet: Any, long: str, wait_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer sees no broker address and no credential, and no GPU that is not its slot's."""
    fleet.plan(long)
    fleet.environment["FLEET_OPERATOR_KEY"] = "s3cret" * 8
    fleet.coordinator()
    fleet.agent()
    fleet.until("gbt-oracle", "running")
    wait_for(lambda: len(_trainers(fleet)) == 1, "the trainer's process")
    environment = _trainers(fleet)[0].environ()
    assert not [name for name in environment if name.startswith("FLEET_")]
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert os.environ.get("PATH") == environment["PATH"]
