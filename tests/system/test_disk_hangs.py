"""Disks that hang, as one of a network may: of a host, and of the coordinator."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.harness.fleet import Fleet, wait_until
from tests.harness.shell import ID, finished

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no file of this system holds its reader"),
]

# It ends with the exit code that somebody writes into a pipe.
TRAINER = """import pathlib, sys
code = int(open(sys.argv[1]).read())
(out,) = (pathlib.Path(one[10:]) for one in sys.argv if one.startswith("--out-dir="))
out.mkdir(exist_ok=True)
(out / "model").write_text("model")
sys.exit(code)"""
JOB = 'model = "waits"\nmode = "oracle"'


@pytest.fixture
def ends_with(tmp_path: Path) -> Path:
    """The pipe that the trainer waits for."""
    os.mkfifo(tmp_path / "ends-with")
    return tmp_path / "ends-with"


@pytest.fixture
def training(fleet: Fleet, ends_with: Path) -> Fleet:
    """A fleet of one host whose trainer runs."""
    command = json.dumps([sys.executable, "-c", TRAINER, str(ends_with)])
    schema = 'schema = { type = "object", properties = {} }'
    trainer = f"[trainers.waits]\ntelemetry = true\ncommand = {command}\n{schema}\n"
    fleet.plan(JOB)
    fleet.coordinator(more=trainer)
    fleet.agent(more=trainer)
    fleet.until("waits-oracle", "running")
    return fleet


def test_a_disk_that_hangs_keeps_no_agent_from_ending(training: Fleet, ends_with: Path) -> None:
    job_id = training.show("waits-oracle")["job_id"]
    bundle = training.tmp / "pi" / "spool" / f"{job_id}.1.making"
    os.mkfifo(bundle)
    ends_with.write_text("0")
    agent = training.programs[-1]
    wait_until(lambda: "its trainer is done" in agent.said(), "the end of the trainer")
    assert agent.end(signal.SIGTERM) == 1
    assert "a disk has not answered for 30 s: ending without it" in agent.said()
    assert training.client.list_workers()[0]["presence"] == "left"
    training.agent()
    training.until("waits-oracle", "completed")
    assert training.show("waits-oracle")["attempt"] == 1


def test_a_disk_that_hangs_keeps_no_coordinator_from_ending(fleet: Fleet) -> None:
    """It says why it does not wait; what the ledger has is filed by the next one."""
    state = fleet.tmp / "coordinator"
    state.mkdir()
    finished(state).ledger.close()
    pipe = state / "incoming" / f"{ID}.json"
    os.mkfifo(pipe)
    program = fleet.coordinator()
    assert program.end(signal.SIGTERM) == 1
    assert "a disk has not answered for 20 s: ending without it" in program.said()
    pipe.unlink()
    again = fleet.coordinator()
    fleet.until("job", "completed")
    assert again.end(signal.SIGTERM) == 0
    assert len(list((state / "models").glob(f"*/{ID}/*"))) == 1
