"""A program that came in a parcel: let in by its digest, started in the sandbox."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agent.core.effects import Part
from agent.process.supervisor import Starter
from agent.programs import sandbox
from agent.programs.programs import metrics_line
from broker.protocol import messages as m
from broker.system.bundle import make_bundle
from tests.harness.agent import JOB
from tests.harness.agent_shell import parts_of
from tests.harness.datasets import Made
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


# It tells what it reads, and which of its attempts to write succeed.
READS = """
import json, pathlib, sys
given = dict(one[2:].partition("=")[::2] for one in sys.argv[1:])
folders = [pathlib.Path(given[name]) for name in ("data.train", "input.weights")]
files = [file for folder in folders for file in sorted(folder.rglob("*")) if file.is_file()]
written = []
for folder, file in [(folder, file) for folder in folders for file in files]:
    for attempt in (
        lambda: file.open("ab"), lambda: file.write_bytes(b"another"), lambda: file.unlink(),
        lambda: file.chmod(0o777), lambda: file.rename(folder / "renamed"),
        lambda: (folder / "more").touch(), lambda: folder.rmdir(),
    ):
        try:
            attempt()
        except OSError:
            continue
        written.append(str(file))
told = {"read": {file.name: file.read_text() for file in files}, "written": written}
pathlib.Path(given["out-dir"], "told.json").write_text(json.dumps(told))
"""


def test_a_program_reads_its_data_and_inputs_and_cannot_write_them(tmp_path: Path) -> None:
    host, made = Host(tmp_path, READS), Made({"0/a.png": b"an image", "1/b.png": b"another one"})
    parts = replace(parts_of(tmp_path), programs=host.programs)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_bytes(b"weights")
    info = make_bundle(tmp_path / "model", tmp_path / "bundle")
    blobs = {**made.blobs, info.artifact_id: (tmp_path / "bundle").read_bytes()}
    given = m.Input(name="weights", artifact_id=info.artifact_id, size_bytes=info.size_bytes)
    assign = host.assign(data=(made.dataset,), inputs=(given,))
    with pytest.raises(OSError, match="not here any more"):
        parts.folders(assign)
    host.fetch()
    fetched = 0
    for part in (Part.PROGRAM, Part.DATA, Part.INPUTS):
        while (lacks := parts.find(assign, part, ())) is not None:
            parts.fetched()[part].write(JOB, 1, 0, blobs[lacks.artifact_id])
            parts.install(assign, part, lacks.artifact_id)
            fetched += 1
    assert fetched == len(blobs)
    starter = Starter()
    try:
        launch = host.launch(assign, folders=parts.folders(assign))
        assert host.code(launch, starter) == 0
    finally:
        starter.close()
    told = json.loads((host.work / "out" / "told.json").read_text("utf-8"))
    read = {"a.png": "an image", "b.png": "another one", "weights": "weights"}
    assert told == {"read": read, "written": []}
