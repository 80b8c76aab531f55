"""Folders of a job, and programs that run there, in the sandbox or not."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from agent.process.supervisor import Starter, Trainer
from agent.programs import sandbox
from agent.programs.environments import Environments
from agent.programs.parcels import Parcels
from agent.programs.programs import Launch, Programs, Verify
from agent.programs.settings import ProgramSettings
from broker.programs.packing import pack
from broker.protocol import messages as m
from broker.system import children
from tests.harness.agent import JOB
from tests.harness.processes import DEADLINE_S

PROGRAM = """
name = "vision"
command = ["python", "train.py"]
resumable = true
[parameters]
lr = { type = "number", maximum = 1 }
epochs = { type = "integer", default = 3 }
"""


class Room:
    """A host's state with one job's folders, and what the job must not see."""

    def __init__(self, root: Path) -> None:
        self.parcel, self.out = root / "programs" / "parcel", root / "work" / "job" / "out"
        self.other = root / "work" / "another job" / "out"
        self.key = root / "identities" / "client.key"
        for folder in (self.parcel, self.out, self.other, self.key.parent):
            folder.mkdir(parents=True)
        self.reads = sandbox.interpreter()
        self.key.write_text("the agent's key", "utf-8")
        (self.other / "model.bin").write_text("the other job's", "utf-8")

    def view(self, *, network: bool = False) -> sandbox.View:
        return sandbox.View(self.parcel, (*self.reads, self.parcel), (self.out,), None, network)

    def command(self, code: str, *, network: bool = False) -> list[str]:
        """Return what runs a Python program, a file of the parcel, in the sandbox."""
        (self.parcel / "train.py").write_text(code, "utf-8")
        return sandbox.sandboxed([sys.executable, "train.py"], self.view(network=network))

    def run(self, code: str, *, network: bool = False) -> str:
        """Run a program to its end; return what it printed. It has to succeed."""
        given = {"PATH": os.environ["PATH"], "GIVEN": "yes"}
        answer = children.answer_of(self.command(code, network=network), DEADLINE_S, given)
        assert answer.code == 0, answer.errors
        return answer.output.strip()


@pytest.fixture
def room(tmp_path: Path) -> Room:
    if not sandbox.works():
        pytest.skip(f"bubblewrap does not work here: {sandbox.REMEDY}")
    return Room(tmp_path)


class Host:
    """A host for one program. Its owner has pinned that, unless `allowed` says something else."""

    def __init__(
        self,
        root: Path,
        script: str = "",
        text: str = PROGRAM,
        verify: Verify | None = None,
        environments: Environments | None = None,
        **allowed: Any,
    ) -> None:
        self.work, self.checkpoint = root / "work", root / "checkpoint"
        folder = root / "vision"
        folder.mkdir()
        (folder / "program.toml").write_text(text, "utf-8")
        (folder / "train.py").write_text(script, "utf-8")
        info = pack(folder, root / "parcel")
        self.program = m.Program(digest=info.artifact_id, size_bytes=info.size_bytes)
        settings = ProgramSettings(**{"pinned": (f"sha256:{info.artifact_id}",)} | allowed)
        parcels = Parcels(root / "state" / "programs", 1e9)
        self.programs = Programs(settings, parcels, verify, environments)
        self.data = (root / "parcel").read_bytes()

    def assign(self, **more: Any) -> m.Assign:
        fields = {"hyper": {"lr": 0.1}, "program": self.program} | more
        return m.Assign(
            id="a1", job_id=JOB, attempt=1, instance="i1", name="job", model="vision", **fields
        )

    def fetch(self) -> None:
        self.programs.parcels.fetched.write(JOB, 1, 0, self.data)
        self.programs.parcels.install(JOB, 1, self.program.digest)

    def launch(
        self,
        assign: m.Assign,
        inherited: Mapping[str, str] = os.environ,
        folders: Mapping[str, Path] = {},
        *,
        resume: bool = False,
    ) -> Launch:
        return self.programs.launch(
            assign, self.work, self.checkpoint, None, inherited, 1, folders, resume=resume
        )

    def code(self, launch: Launch, starter: Starter) -> int:
        """Run it to its end; return how it ended."""
        codes: Queue[int] = Queue()
        Trainer(launch.command, launch.environment, self.work, lambda _: None, codes.put, starter,
                folder=launch.folder)  # fmt: skip
        return self.programs.exit_code(codes.get(timeout=DEADLINE_S))
