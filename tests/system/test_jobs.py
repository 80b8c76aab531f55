"""What becomes of jobs, with the real programs on the real embedded broker."""

from __future__ import annotations

import os
import signal
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from coordinator.cli.results import fetch
from coordinator.client.contact import NotDone
from tests.harness.brokers import free_port
from tests.harness.fleet import Program
from tests.harness.processes import is_over

COUNTED = (
    'jobs{state="completed"}', 'hosts{presence="online"}', 'host_online{host="pi"}',
    "broker_connected", "artifacts_received_total",
    'job_duration_seconds_count{model="gbt",outcome="completed"}',
)  # fmt: skip


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
    fleet: Any, short: str, wait_for: Any, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("MPLCONFIGDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        fleet.environment.pop(name, None)
    fleet.environment |= {"HOME": str(home), "USERPROFILE": str(home)}
    fleet.plan(short)
    port = free_port()
    fleet.coordinator(metrics=f"127.0.0.1:{port}")
    fleet.agent()
    row = fleet.until("gbt-oracle", "completed")

    assert fleet.digest(row) == row["artifact_id"]
    assert row["host"] == "pi"
    assert 0.0 <= row["metrics"]["auroc"] <= 1.0
    assert fleet.events("gbt-oracle") == ["added", "assigned", "started", "completed"]
    figures: dict[str, str] = {}

    def is_counted() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            figures.update(line.rsplit(" ", 1) for line in answer.read().decode().splitlines())
        return figures["fleet_artifacts_received_total"] == "1.0"

    wait_for(is_counted, "the artifact to be counted, which follows as well")
    assert {name: figures[f"fleet_{name}"] for name in COUNTED} == dict.fromkeys(COUNTED, "1.0")
    assert float(figures["fleet_artifact_received_bytes_total"]) > 1000
    assert float(figures["fleet_ledger_commit_seconds_count"]) > 3
    for folder in (fleet.tmp / "pi" / "spool", fleet.tmp / "pi" / "work"):
        wait_for(lambda folder=folder: not list(folder.iterdir()), f"{folder} to be emptied")
    got = fetch(fleet.client, "gbt-oracle", tmp_path / "got")
    assert "gbt_oracle_train.json" in [path.name for path in got.files]
    assert list(home.iterdir()) == []
    fleet.requeue("gbt-oracle")
    again = fleet.until(
        "gbt-oracle", lambda row: row["state"] == "completed" and row["attempt"] == 2
    )
    assert again["artifact_id"] == row["artifact_id"]


def test_a_trainer_lives_as_long_as_its_attempt(fleet: Any, long: str, wait_for: Any) -> None:
    """It ends with a requeue, its agent (SIGKILL, SIGTERM), and a cancel; never two at once.

    It sees no broker address, no credential, and no GPU that is not its slot's.
    """

    def trainer(attempt: int) -> psutil.Process:
        fleet.until(
            "gbt-oracle", lambda row: row["state"] == "running" and row["attempt"] == attempt
        )
        wait_for(lambda: len(_trainers(fleet)) == 1, "one trainer")
        return _trainers(fleet)[0]

    fleet.plan(long)
    coordinator = fleet.coordinator()
    fleet.environment["FLEET_OPERATOR_KEY"] = "s3cret" * 8
    agent = fleet.agent()
    first = trainer(1)
    environment = first.environ()
    assert not [name for name in environment if name.startswith("FLEET_")]
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert os.environ.get("PATH") == environment["PATH"]
    for program, name in ((coordinator, "coordinator"), (agent, "agent")):
        log = program.log.with_suffix(".second")
        second = Program(program.module, program.arguments, program.environment, log)
        second.start(wait=False)
        assert second.end(0) == 2
        assert f"another {name} (process {program.process.pid})" in second.said()
    assert _trainers(fleet) == [first]

    fleet.requeue("gbt-oracle")
    wait_for(lambda: is_over(first), "the end of the old trainer")
    orphan = trainer(2)
    agent.kill()
    agent.start()
    trainer(3)
    assert is_over(orphan)
    assert "lost" in fleet.events("gbt-oracle")

    assert agent.end(signal.SIGTERM) == 0
    assert not _trainers(fleet)
    assert fleet.until("gbt-oracle", "pending")["attempt"] == 3
    assert fleet.events("gbt-oracle")[-1] == "released"
    agent.start()
    trainer(4)
    assert fleet.cancel("gbt-oracle")["state"] == "cancelled"
    wait_for(lambda: not _trainers(fleet), "the trainer to end")
    wait_for(lambda: not list((fleet.tmp / "pi" / "work").iterdir()), "the work folder to go")
    with pytest.raises(NotDone) as refusal:
        fleet.cancel("gbt-oracle")
    assert (refusal.value.why["code"], refusal.value.why["state"]) == ("over_already", "cancelled")


@pytest.mark.smoke
def test_a_broker_that_is_killed_and_started_again_loses_nothing(
    tmp_path: Path, data: Path, new_broker: Any, make_fleet: Any
) -> None:
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
