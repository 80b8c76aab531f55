"""Prepared data that goes while an agent runs: the jobs are another host's, and none is failed."""

from __future__ import annotations

import shutil
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.capability import measure
from agent.checkpoints import Checkpoints
from agent.datafolder import SCHEMA_FILE, DataFolder
from agent.effects import StartTrainer, Tick
from agent.figures import Busy
from agent.shell import Shell, Surroundings
from agent.spool import Spool
from broker import messages as m
from broker.errors import BadMessage
from broker.wire import Incoming, Outgoing
from tests.harness.agent import ADAPTERS, HEX, JOB, Agent


class Host:
    """An agent's shell that measures this machine, and its folder of data."""

    def __init__(self, tmp: Path, data: Path | None) -> None:
        self.agent = Agent(data=None)
        self.agent.sent.clear()
        self.events: deque[Any] = deque()
        self.started: list[StartTrainer] = []
        around = Surroundings(
            self.agent.topics, publish=self._publish, put=self.events.append,
            background=lambda work: work(), measure=partial(measure, Busy(), DataFolder(data)),
            look=lambda _: None, start=self._start,
        )  # fmt: skip
        self.shell = Shell(self.agent.core, around, Spool(tmp / "s"), Checkpoints(tmp / "s"))

    def _publish(self, message: Outgoing) -> bool:
        topic = self.agent.topics.parse(message.topic)
        said = m.decode(ADAPTERS[topic.kind], message.payload)
        self.agent.sent.append((topic, said))
        return True

    def _start(self, effect: StartTrainer) -> Any:
        self.started.append(effect)
        raise BadMessage("nothing is trained here")

    def _happens(self, event: Any) -> None:
        self.events.append(event)
        while self.events:
            self.shell.turn([self.events.popleft()], self.agent.now)

    def beats(self) -> None:
        """A heartbeat is due."""
        self.agent.mono_s += 31
        self._happens(Tick())

    def assigned(self, job_id: str = JOB) -> list[Any]:
        """The coordinator assigns a job; return what is said of capability and job, in order."""
        self.agent.sent.clear()
        assign = m.Assign(id="q", job_id=job_id, attempt=1, instance="i1", name="job",
                          model="gbt", mode="oracle", lease_s=60.0)  # fmt: skip
        self._happens(Incoming(self.agent.topics.request("pi"), m.encode(assign)))
        kinds = (m.Capability, m.Refused, m.Accepted)
        return [said for _, said in self.agent.sent if isinstance(said, kinds)]

    def data_ids(self) -> list[str | None]:
        """Take what it has said of its data."""
        return [said.data_id for said in self.agent.said(m.Capability)]


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
    capability, refused = host.assigned()
    assert capability.data_id is None
    assert refused.reasons == ("has no prepared data",)
    host.beats()
    assert [said.reasons for said in host.assigned(HEX)] == [("has no prepared data",)]
    (gone,) = caplog.records
    assert (gone.levelname, str(data) in gone.message) == ("WARNING", True)
    assert not host.started
    (tmp_path / "elsewhere").rename(data)
    host.beats()
    assert host.data_ids() == [known]
    assert [type(said) for said in host.assigned("cc" * 32)] == [m.Accepted]
    assert host.started
    assert [one.levelname for one in caplog.records if "data" in one.message] == ["WARNING", "INFO"]


def test_data_that_cannot_be_read_or_is_another_is_told_with_the_next_heartbeat(
    tmp_path: Path, data: Path
) -> None:
    """Without an assignment, too: whoever asks what the host is hears how it is now."""
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
    """The agent began without; nobody has to start it again."""
    shutil.move(data, tmp_path / "disk")
    host = Host(tmp_path, data)
    host.beats()
    assert not host.data_ids()
    assert f"there is no folder {data}: this host can take no job" in caplog.text
    shutil.move(tmp_path / "disk", data)
    assert [type(said) for said in host.assigned()] == [m.Capability, m.Accepted]
