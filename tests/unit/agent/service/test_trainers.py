"""Where a trainer finds its data, and what its end says of the host's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from agent.core.effects import StartTrainer, TrainerExited
from agent.host.data_folder import SCHEMA_FILE, DataFolder
from agent.programs.parts import Part
from agent.service.settings import AgentSettings
from agent.service.trainers import Trainers
from agent.spool.spool import Spool
from broker.client.mailbox import Mailbox
from broker.protocol import messages as m
from tests.harness.agent import JOB, Agent
from tests.harness.agent_shell import parts_of
from tests.harness.datasets import Made

MADE = Made({SCHEMA_FILE: b"{}"}, name="prepared")


class Host:
    """An agent without a data folder, unless one is named, and the trainers that it starts."""

    def __init__(self, state: Path, data: DataFolder | None = None) -> None:
        settings, mailbox = AgentSettings(host="pi", state=state), Mailbox[Any]()
        self.parts = parts_of(state)
        self.mailbox = mailbox
        self.agent = Agent()
        self.trainers = Trainers(
            self.agent.core, settings, {}, Spool(state), self.parts, data or DataFolder(None),
            mailbox,
        )  # fmt: skip


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def assign(**more: Any) -> m.Assign:
    fields = {"name": "n", "model": "gbt", "mode": "oracle", "instance": "i1"} | more
    return m.Assign(id="a", job_id=JOB, attempt=1, **fields)


def test_the_dataset_of_a_job_takes_the_place_of_the_hosts_data(host: Host) -> None:
    job = assign(data=(MADE.dataset,))
    while (lacks := host.parts.find(job, Part.DATA, ())) is not None:
        host.parts.fetched()[Part.DATA].write(JOB, 1, 0, MADE.blobs[lacks.artifact_id])
        host.parts.install(job, Part.DATA, lacks.artifact_id)
    launch = host.trainers.launch(StartTrainer(job, 0, None), resume=False)
    (folder,) = [word.partition("=")[2] for word in launch.command if word.startswith("--data=")]
    assert [path.name for path in Path(folder).iterdir()] == [SCHEMA_FILE]


@pytest.mark.parametrize("brings", [True, False])
def test_a_trainer_with_data_of_its_own_does_not_fail_for_want_of_the_hosts(
    host: Host, *, brings: bool
) -> None:
    host.trainers.ended(assign(data=(MADE.dataset,) if brings else ()), 1)
    (event,) = host.mailbox.take(0.0)
    assert isinstance(event, TrainerExited)
    assert event.data_gone == (not brings)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no file of this system holds its reader")
@pytest.mark.parametrize("cancelled", [True, False])
def test_a_trainer_that_was_told_to_end_waits_for_no_disk(
    tmp_path: Path, *, cancelled: bool
) -> None:
    """What its data was the last time is good enough; one that fails by itself has it looked at."""
    schema = tmp_path / SCHEMA_FILE
    schema.write_text("{}")
    data = DataFolder(tmp_path, answer_s=0.05)
    data.look()
    host = Host(tmp_path, data)
    host.agent.runs()
    if cancelled:
        host.agent.hears(m.Cancel(id="c", job_id=JOB, attempt=1))
    schema.unlink()
    os.mkfifo(schema)
    host.trainers.ended(assign(), -15)
    (event,) = host.mailbox.take(0.0)
    assert event.data_gone == (not cancelled)
    if not cancelled:
        os.close(os.open(schema, os.O_WRONLY))  # the look that waits is answered
