"""Trainers as processes: what they say, how they end, and what they leave behind."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent import supervisor
from agent.command import trainer_command, trainer_environment
from agent.supervisor import Trainer, end_orphan
from broker.errors import BadMessage
from broker.messages import Assign

DEADLINE_S = 20.0


class Watched:
    """A trainer whose lines and end a test can wait for."""

    def __init__(self, work: Path, code: str) -> None:
        self.lines: queue.Queue[str] = queue.Queue()
        self.codes: queue.Queue[int] = queue.Queue()
        self.trainer = Trainer(
            [sys.executable, "-u", "-c", code], dict(os.environ), work,
            self.lines.put, self.codes.put,
        )  # fmt: skip

    def line(self) -> str:
        return self.lines.get(timeout=DEADLINE_S)

    def code(self) -> int:
        return self.codes.get(timeout=DEADLINE_S)


def test_lines_and_exit_codes_arrive(tmp_path: Path) -> None:
    """Both streams, line by line, in order; then the code. The log has all of it."""
    run = Watched(tmp_path, "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)")
    assert [run.line(), run.line()] == ["one", "two"]
    assert run.code() == 3
    assert (tmp_path / "trainer.log").read_text() == "one\ntwo\n"


def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    """Memory is bounded, whatever is printed; bytes that are no text do no harm."""
    run = Watched(
        tmp_path,
        "import sys; sys.stdout.buffer.write(b'\\xff\\xfe\\n' + b'x' * 100_000 + b'\\nend\\n')",
    )
    assert run.line() == "\ufffd\ufffd"
    assert len(run.line()) == 8192
    while run.line() != "end":
        pass
    assert run.code() == 0


def test_the_log_on_disk_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer that prints for ever does not fill the disk."""
    monkeypatch.setattr(supervisor, "MAX_LOG_BYTES", 10_000)
    run = Watched(tmp_path, "for n in range(5000): print('line', n)")
    assert run.code() == 0
    assert (tmp_path / "trainer.log").stat().st_size < 11_000


GRANDCHILD = (
    "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', "
    "'import time; time.sleep(600)']); print(p.pid); {}"
)


@pytest.mark.skipif(os.name != "posix", reason="process groups are a POSIX matter")
def test_the_whole_group_is_ended(tmp_path: Path) -> None:
    """What the trainer has started itself goes with it, on a signal and at its own end."""
    run = Watched(tmp_path / "a", GRANDCHILD.format("time.sleep(600)"))
    grandchild = psutil.Process(int(run.line()))
    run.trainer.send_signal(kill=False)
    assert run.code() == -15
    psutil.wait_procs([grandchild], timeout=DEADLINE_S)
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE

    own = Watched(tmp_path / "b", GRANDCHILD.format("sys.stdout.close(); import os; os._exit(0)"))
    left = psutil.Process(int(own.line()))
    # Its output is held open by the grandchild: the end of the trainer has to be enough.
    left.kill()
    assert own.code() == 0


def test_an_orphan_is_ended_by_its_identity(tmp_path: Path) -> None:
    """The process that was recorded, and no other that has its number now."""
    agent = (
        "import os, pathlib, sys; from agent.supervisor import Trainer;"
        "Trainer([sys.executable, '-c', 'import time; time.sleep(600)'], dict(os.environ),"
        " pathlib.Path(sys.argv[1]), print, print); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", agent, str(tmp_path)], check=True, timeout=DEADLINE_S)
    recorded = json.loads((tmp_path / "process.json").read_text())
    orphan = psutil.Process(recorded["pid"])
    assert orphan.is_running()

    other = tmp_path / "other"
    other.mkdir()
    stranger = recorded | {"created_s": recorded["created_s"] - 100}
    (other / "process.json").write_text(json.dumps(stranger))
    assert not end_orphan(other)
    assert orphan.is_running()

    assert end_orphan(tmp_path)
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE
    assert not end_orphan(tmp_path)
    (other / "process.json").write_text("{")
    assert not end_orphan(other)


def assign(**more: Any) -> Assign:
    """An assignment."""
    fields = {"name": "n", "model": "gbt", "mode": "oracle", "lease_s": 60} | more
    return Assign(id="a", job_id="1b" * 32, attempt=1, **fields)


def test_the_command_is_ours_and_the_values_are_checked(tmp_path: Path) -> None:
    """J8: a message chooses a trainer and hyperparameters, nothing else."""
    command = trainer_command(assign(hyper={"lr": 0.1, "epochs": 3}), tmp_path, tmp_path, 2)
    assert command[1:3] == ["-m", "agent.trainer.run"]
    assert command[-4:] == ["--epochs", "3", "--lr", "0.1"]
    for bad in (
        {"model": "os.system"}, {"hyper": {"--out-dir": "/etc"}}, {"hyper": {"lr": "1; rm"}},
        {"hyper": {"epochs": 10**9}}, {"train_hosts": ("a,b",)}, {"train_hosts": ("--data",)},
    ):  # fmt: skip
        with pytest.raises(BadMessage):
            trainer_command(assign(**bad), tmp_path, tmp_path, 2)
    known = subprocess.run(
        [*command, "--help"], capture_output=True, timeout=60, check=False, cwd=tmp_path
    )
    assert known.returncode == 0, known.stderr


def test_a_trainer_sees_its_own_gpu_and_nothing_of_the_fleet() -> None:
    """No broker address, no credential."""
    inherited = {"PATH": "/bin", "FLEET_BROKER": "x", "FLEET_OPERATOR_KEY": "s3cret"}
    environment = trainer_environment(inherited, 3, 2)
    assert "s3cret" not in environment.values()
    assert not [name for name in environment if name.startswith("FLEET_")]
    assert environment["CUDA_VISIBLE_DEVICES"] == "3"
    assert trainer_environment(inherited, None, 2)["CUDA_VISIBLE_DEVICES"] == ""
    assert environment["OMP_NUM_THREADS"] == "2"
