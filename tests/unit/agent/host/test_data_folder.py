"""Prepared data that goes, or hangs: the jobs are another host's, and none is failed."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.core.effects import (
    BundleCheckpoint,
    CheckpointBundled,
    StartTrainer,
    Tick,
    TrainerExited,
    TrainerLine,
)
from agent.core.runs import FRESH_S
from agent.host.capability import measure
from agent.host.data_folder import SCHEMA_FILE, DataFolder
from broker.errors import BadMessage
from broker.protocol import messages as m
from tests.harness.agent import HEX, JOB, Agent
from tests.harness.agent_shell import AgentShell


class Host(AgentShell):
    """An agent's shell that measures this machine, and its folder of data."""

    def __init__(self, tmp: Path, data: Path | None, answer_s: float = 10.0) -> None:
        folder, agent = DataFolder(data, answer_s), Agent(data=None)
        super().__init__(
            tmp / "s", agent, measure=lambda gpus: self.events.append(measure(folder, gpus, Path()))
        )
        agent.sent.clear()

    def _start(self, effect: StartTrainer) -> Any:
        self.started.append(effect)
        raise BadMessage("nothing is trained here")

    def beats(self) -> None:
        self.agent.mono_s += 31
        self.happens(Tick())

    def answers(self, job_id: str = JOB) -> list[Any]:
        """The coordinator assigns a job; return what is said of capability and job, in order."""
        self.agent.sent.clear()
        self.agent.mono_s += FRESH_S  # it measures anew
        self.assigned(job_id=job_id)
        kinds = (m.Capability, m.Refused, m.Accepted)
        return [said for _, said in self.agent.sent if isinstance(said, kinds)]

    def data_ids(self) -> list[str | None]:
        """Take what it has said of its data."""
        return [said.data_id for said in self.agent.said(m.Capability)]


class Hanging:
    """A disk that does not answer: whoever reads the schema waits until the disk is `let_go`."""

    def __init__(self, data: Path) -> None:
        self._file = data / SCHEMA_FILE
        self._held = data / "held"
        self._bytes = self._file.read_bytes()
        self._file.unlink()
        os.mkfifo(self._file)

    def waits(self) -> list[threading.Thread]:
        """Return the threads that wait for it."""
        return [one for one in threading.enumerate() if one.name == "fleet-aside"]

    def let_go(self) -> None:
        """It is as it was before, and whoever waits is answered."""
        self._file.rename(self._held)
        self._file.write_bytes(self._bytes)
        waiting = self.waits()
        with self._held.open("wb"):
            pass
        for thread in waiting:
            thread.join(60)
            assert not thread.is_alive()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder that looks like prepared data."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / SCHEMA_FILE).write_text("{}")
    return tmp_path / "data"


def test_a_host_whose_data_has_gone_refuses_and_comes_back(
    tmp_path: Path, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It says first that it has no data, so that no job is meant for it; and it says that once."""
    caplog.set_level("INFO", "fleet.agent")
    host = Host(tmp_path, data)
    host.beats()
    (known,) = host.data_ids()
    assert known
    assert not caplog.records
    data.rename(tmp_path / "elsewhere")
    capability, refused = host.answers()
    assert capability.data_id is None
    assert refused.reasons == (m.Objection(code="no-data"),)
    host.beats()
    assert [said.reasons for said in host.answers(HEX)] == [(m.Objection(code="no-data"),)]
    (gone,) = caplog.records
    assert (gone.levelname, str(data) in gone.message) == ("WARNING", True)
    assert not host.started
    (tmp_path / "elsewhere").rename(data)
    host.beats()
    assert host.data_ids() == [known]
    assert [type(said) for said in host.answers("cc" * 32)] == [m.Accepted]
    assert host.started
    assert [one.levelname for one in caplog.records if "data" in one.message] == ["WARNING", "INFO"]


def test_data_that_cannot_be_read_or_is_another_is_told_with_the_next_heartbeat(
    tmp_path: Path, data: Path
) -> None:
    host = Host(tmp_path, data)
    host.beats()
    (known,) = host.data_ids()
    (data / SCHEMA_FILE).write_text('{"prepared": "anew"}')
    host.beats()
    (anew,) = host.data_ids()
    assert anew not in {known, None}
    (data / SCHEMA_FILE).unlink()
    (data / SCHEMA_FILE).mkdir()  # what a user may not read, root may; nobody reads a folder
    host.beats()
    host.beats()
    assert host.data_ids() == [None]


def test_a_disk_that_is_mounted_late_is_found(
    tmp_path: Path, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.move(data, tmp_path / "disk")
    host = Host(tmp_path, data)
    host.beats()
    assert not host.data_ids()
    assert f"there is no folder {data}: this host takes no job" in caplog.text
    shutil.move(tmp_path / "disk", data)
    assert [type(said) for said in host.answers()] == [m.Capability, m.Accepted]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no file of this system holds its reader")
def test_a_disk_that_hangs_costs_no_heartbeat_and_is_used_again(
    tmp_path: Path, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One thread waits for it; the host says that it has no data, and refuses, until it answers."""
    caplog.set_level("INFO", "fleet.agent")
    host = Host(tmp_path, data, answer_s=0.05)
    host.beats()
    (known,) = host.data_ids()
    disk = Hanging(data)
    give_up = threading.Timer(60, disk.let_go)  # a look that waits for it fails, and hangs no test
    give_up.daemon = True
    give_up.start()
    host.agent.said(m.Heartbeat)
    for _ in range(3):
        host.beats()
    assert len(host.agent.said(m.Heartbeat)) == 3
    assert host.data_ids() == [None]
    assert [said.reasons for said in host.answers()] == [(m.Objection(code="no-data"),)]
    assert len(disk.waits()) == 1
    (late,) = caplog.records
    assert f"{data} has not answered for 0.05 s: this host takes no job" in late.message
    give_up.cancel()
    disk.let_go()
    host.beats()
    assert host.data_ids() == [known]
    assert [type(said) for said in host.answers(HEX)] == [m.Accepted]
    assert [one.levelname for one in caplog.records if "data" in one.message] == ["WARNING", "INFO"]


def _fails_without_data(agent: Agent, code: int) -> None:
    agent.data = None
    agent.handle(TrainerExited(JOB, 1, code, data_gone=True))


@pytest.mark.parametrize("code", [2, 1, -9])
def test_a_trainer_that_fails_when_its_data_has_gone_gives_the_job_back(code: int) -> None:
    """Its host has no data by then, so that the job is another's; what the trainer said is kept."""
    agent = Agent()
    agent.runs()
    agent.sent.clear()
    said = '{"event": "error", "kind": "bad_input", "message": "x: cannot be read"}'
    agent.handle(TrainerLine(JOB, 1, said))
    _fails_without_data(agent, code)
    assert agent.took(BundleCheckpoint)
    agent.handle(CheckpointBundled(JOB, 1))
    kinds = (m.Capability, m.Released, m.Failed)
    capability, released = [one for _, one in agent.sent if isinstance(one, kinds)]
    assert capability.data_id is None
    assert released.why == m.Why(code="data", text="bad_input: x: cannot be read")
