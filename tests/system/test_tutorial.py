"""The program of docs/tutorial/own-program.md, as it stands there, trains in a fleet."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

from broker.protocol.messages import AskRun
from coordinator.client.pushing import push
from tests.harness.fleet import ROOT, Fleet

pytestmark = pytest.mark.system
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def test_the_program_of_the_tutorial_trains_in_a_fleet(fleet: Fleet, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "tutorial" / "own-program.md").read_text("utf-8")
    (_, script), (_, program), *_ = BLOCK.findall(text)
    folder = tmp_path / "shapes"
    folder.mkdir()
    (folder / "train.py").write_text(script, "utf-8")
    (folder / "program.toml").write_text(program, "utf-8")
    fleet.plan()
    fleet.coordinator()
    fleet.agent("pi", more="[programs]\nunsigned = true\n")
    pushed = push(fleet.client, folder, lambda *_: contextlib.nullcontext(lambda _: None))
    job = {"name": "shapes", "program": pushed.title, "parameters": {"lr": 0.01}}
    fleet.ask(AskRun, job=job)
    row = fleet.until("shapes", "completed")
    assert row["metrics"]["accuracy"] > 0.6, "it has learned something"
    again = push(fleet.client, folder, lambda *_: contextlib.nullcontext(lambda _: None))
    assert (again.title, again.sent) == (pushed.title, False)
