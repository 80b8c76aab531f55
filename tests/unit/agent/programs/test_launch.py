"""A program that came in a parcel: let in by its digest, started in the sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.process.supervisor import Starter
from agent.programs import sandbox
from agent.programs.programs import metrics_line
from tests.unit.agent.programs.conftest import Host

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not sandbox.works(), reason=f"bubblewrap: {sandbox.REMEDY}"),
]

# It tells its arguments, leaves off once, and is killed the second time.
TRAIN = """
import json, os, pathlib, signal, sys
given = dict(one[2:].partition("=")[::2] for one in sys.argv[1:])
file = pathlib.Path(given["checkpoint-dir"], "state")
if "resume" in given:
    os.kill(os.getpid(), signal.SIGKILL)
file.write_text("epoch 1")
metrics = {name: given[name] for name in ("lr", "epochs")}
pathlib.Path(given["out-dir"], "metrics.json").write_text(json.dumps(metrics))
"""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, TRAIN)


def test_a_pinned_program_is_fetched_and_trains(host: Host) -> None:
    assert not host.programs.find(host.assign())
    host.fetch()
    assert host.programs.find(host.assign())
    starter = Starter()
    try:
        assert host.code(host.launch(host.assign()), starter) == 0
        told = metrics_line(host.work / "out")
        assert told == '{"event": "result", "metrics": {"lr": "0.1", "epochs": "3"}}'
        assert (host.checkpoint / "state").read_text("utf-8") == "epoch 1"
        again = host.launch(host.assign(), resume=True)
        assert host.code(again, starter) == -9, "as a trainer that is installed here would end"
    finally:
        starter.close()
