"""A job that is given back goes on where it stood, on the same host and on another."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from broker.protocol.messages import AskDrain, AskLogs
from broker.system.bundle import make_bundle
from tests.harness.fleet import ROOT

JOB = """model = "mlp"
mode = "oracle"
n_resamples = 20
hyper.epochs = 60
hyper.patience = 60
hyper.hidden = 16
hyper.batch_size = 2"""
FLAGS = ("--epochs=60", "--patience=60", "--hidden=16", "--batch-size=2", "--n-resamples=20")


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The artifact's id when nobody interferes: trained by hand, and bundled."""
    folder = tmp_path_factory.mktemp("by-hand")
    subprocess.run(
        [
            sys.executable, "-m", "agent.trainer.run", "--model=mlp", "--mode=oracle",
            f"--data={data}", f"--out-dir={folder / 'out'}", "--threads=1", *FLAGS,
        ],
        check=True, capture_output=True, timeout=600, cwd=ROOT,
    )  # fmt: skip
    return make_bundle(folder / "out", folder / "bundle").artifact_id


def lines_of(fleet: Any) -> list[str]:
    found: list[str] = fleet.ask(AskLogs, job="mlp-oracle")["lines"]
    return found


def told(fleet: Any, event: str) -> dict[str, Any]:
    """What the history says of the newest event of a kind."""
    events = [one for one in fleet.show("mlp-oracle")["events"] if one["event"] == event]
    why: dict[str, Any] = events[-1]["why"]
    return why


@pytest.mark.smoke
@pytest.mark.parametrize("where", [pytest.param("elsewhere", marks=pytest.mark.slow), "here"])
def test_a_job_goes_on_where_its_agent_left(
    fleet: Any, undisturbed: str, where: str, wait_for: Any
) -> None:
    """What comes of it is what would have come of it undisturbed, bit for bit."""
    fleet.plan(JOB)
    fleet.coordinator()
    hosts = ["first", "second"] if where == "elsewhere" else ["first"]
    agents = {host: fleet.agent(host) for host in hosts}
    left = fleet.until("mlp-oracle", "running")["host"]
    wait_for(lambda: any("epoch 2/60" in line for line in lines_of(fleet)), "two epochs")
    agents[left].stop()
    if where == "here":
        fleet.until("mlp-oracle", "pending")
        agents[left].start()
    row = fleet.until("mlp-oracle", "completed")

    assert (row["host"] == left) == (where == "here")
    assert told(fleet, "released")["checkpoint"] is True
    assert told(fleet, "assigned") == {"code": "resumes", "resumed_from": 1}
    assert any("going on from a checkpoint in epoch" in line for line in lines_of(fleet))
    assert row["artifact_id"] == undisturbed
    kept = fleet.tmp / row["host"] / "checkpoints"
    wait_for(lambda: not list(kept.iterdir()), "the checkpoint to be deleted")


def test_a_job_goes_on_where_a_killed_agent_left_it(fleet: Any, wait_for: Any) -> None:
    """SIGKILL: back again, it hands the checkpoint over, and another host repeats no step."""
    file = fleet.tmp / "journal.jsonl"
    words = [sys.executable, "-I", "-S", str(ROOT / "tests/chaos/trainer.py"), str(file), "pi"]
    own = f"""[trainers.seconds]
telemetry = true
command = {json.dumps(words)}
resumable = true
schema = {{type = "object", properties = {{}}}}
"""
    fleet.plan('model = "seconds"\nmode = "oracle"\nseed = 3')
    fleet.coordinator(more=own)
    agent = fleet.agent("pi", more=own)
    wait_for(lambda: file.exists() and _steps(file)[-1:] >= [5], "five steps")
    agent.kill()
    fleet.ask(AskDrain, host="pi")
    fleet.agent("lap", more=own)
    fleet.agent("pi", more=own)
    row = fleet.until("seconds-oracle", "completed")
    assert (row["host"], row["attempt"]) == ("lap", 2)
    steps = _steps(file)
    assert steps == sorted(set(steps))
    whys = {one["event"]: one["why"] for one in fleet.show("seconds-oracle")["events"]}
    assert whys["started"]["resumes"] is True


def _steps(file: Path) -> list[int]:
    """The steps that trainers of the job have noted, in the order of their notes."""
    notes = [json.loads(line) for line in file.read_bytes().splitlines()]
    return [one["step"] for one in notes if one["what"] == "step"]
