"""How a program is started: its arguments and its environment. No process is started here."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.core.output import understand
from agent.programs import sandbox
from agent.programs.cached_folders import KEPT_S, mark_of
from agent.programs.environments import Environments
from agent.programs.programs import metrics_line
from broker.errors import BadMessage, FleetError
from broker.protocol.loglines import MAX_LINE_CHARS
from broker.system.machine import system_clock
from tests.harness.agent import HEX
from tests.unit.agent.programs.conftest import PROGRAM, Host

SEEDED = (
    PROGRAM
    + """
seed = { type = "integer" }
title = { type = "string", default = "a b" }
deep = { type = "boolean", default = false }
"""
)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """One without a sandbox, which has fetched the program."""
    made = Host(tmp_path, text=SEEDED, sandbox="none")
    made.fetch()
    return made


def arguments(host: Host, hyper: dict[str, Any], seed: int = 0) -> list[str]:
    """Return the arguments of a program that are its parameters."""
    command = host.launch(host.assign(hyper=hyper, seed=seed)).command
    assert command[:2] == [sys.executable, "train.py"]
    return [one for one in command[2:] if "-dir=" not in one]


def test_parameters_that_a_job_leaves_out_have_their_defaults(host: Host) -> None:
    assert arguments(host, {"lr": 0.1}, seed=7) == [
        "--deep=false", "--epochs=3", "--lr=0.1", "--seed=7", "--title=a b",
    ]  # fmt: skip


def test_a_jobs_own_parameters_win(host: Host) -> None:
    given = {"lr": 0.5, "epochs": 9, "seed": 2, "title": "--resume", "deep": True}
    assert arguments(host, given, seed=7) == [
        "--deep=true", "--epochs=9", "--lr=0.5", "--seed=2", "--title=--resume",
    ]  # fmt: skip


def test_a_program_without_a_seed_is_given_none(tmp_path: Path) -> None:
    host = Host(tmp_path, sandbox="none")
    host.fetch()
    assert arguments(host, {"lr": 0.1}, seed=7) == ["--epochs=3", "--lr=0.1"]


@pytest.mark.parametrize(
    "hyper",
    [{}, {"lr": 2}, {"lr": "0.1"}, {"lr": 0.1, "out_dir": "/etc"}, {"lr": 0.1, "title": "a\0b"}],
)
def test_a_program_is_not_started_with_parameters_that_it_does_not_take(
    host: Host, hyper: dict[str, Any]
) -> None:
    with pytest.raises(BadMessage, match="parameters of vision"):
        host.launch(host.assign(hyper=hyper))


def test_a_program_is_told_where_to_write_and_whether_it_goes_on(host: Host) -> None:
    command = host.launch(host.assign(), resume=True).command
    out, checkpoint = host.work / "out", host.checkpoint
    assert {f"--out-dir={out}", f"--checkpoint-dir={checkpoint}", "--resume"} <= {*command}
    assert "--resume" not in host.launch(host.assign()).command
    assert out.is_dir()
    assert checkpoint.is_dir()


def test_the_agents_secrets_are_in_no_variable(host: Host) -> None:
    inherited = {
        "PATH": "/usr/bin", "LANG": "C.UTF-8", "FLEET_OPERATOR_KEY": "secret", "HOME": "/root",
        "LD_PRELOAD": "/x.so", "PYTHONPATH": "/x", "AWS_SECRET_ACCESS_KEY": "secret",
    }  # fmt: skip
    environment = host.launch(host.assign(), inherited).environment
    assert environment == {
        "PATH": "/usr/bin", "LANG": "C.UTF-8",
        "HOME": str(host.work), "USERPROFILE": str(host.work),
        "CUDA_VISIBLE_DEVICES": "", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1",
    }  # fmt: skip


def test_what_a_program_writes_to_its_folder_does_not_reach_the_next_job(host: Host) -> None:
    folder = host.launch(host.assign()).folder
    (folder / "train.py").write_text("changed", "utf-8")
    kept = host.programs.parcels.folder(host.program.digest)
    assert kept is not None
    assert (kept / "train.py").read_text("utf-8") == ""


def test_a_program_that_is_not_here_is_not_started(tmp_path: Path) -> None:
    host = Host(tmp_path, sandbox="none")
    with pytest.raises(FleetError, match="is not here any more"):
        host.launch(host.assign())


def test_a_job_without_packages_does_not_keep_unused_ones(tmp_path: Path) -> None:
    environments = Environments(tmp_path / "kept", 0.0, system_clock, uses_sandbox=False)
    host = Host(tmp_path, sandbox="none", environments=environments)
    host.fetch()
    unused = tmp_path / "kept" / "whole" / HEX
    (unused / "venv").mkdir(parents=True)
    (unused / "build.log").write_text("built", "utf-8")
    mark_of(unused).touch()
    now = system_clock()
    os.utime(mark_of(unused), (0, now.wall_s - KEPT_S - 60))
    host.programs.collect({host.program.digest}, now.wall_s)
    assert not unused.exists()


@pytest.mark.posix  # it has neither such links nor such pipes
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_metrics_that_are_no_file_of_the_program_are_not_read(tmp_path: Path, kind: str) -> None:
    """The agent would tell what a sandboxed program cannot read, or wait at a pipe for ever."""
    secret, path = tmp_path / "state.json", tmp_path / "out" / "metrics.json"
    secret.write_text('{"token": "secret"}', "utf-8")
    path.parent.mkdir()
    match kind:
        case "link":
            path.symlink_to(secret)
        case "pipe":
            os.mkfifo(path)
        case _:
            path.mkdir()
    told = metrics_line(path.parent) or ""
    assert understand(told).unread, "whoever wrote it learns that it is not read"
    assert "secret" not in told


@pytest.mark.parametrize(
    "text", ['{"accuracy": 0.', "[1, 2]", "7", "", json.dumps({"long": "x" * MAX_LINE_CHARS})]
)
def test_metrics_that_are_no_object_are_not_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "metrics.json").write_text(text, "utf-8")
    line = understand(metrics_line(tmp_path) or "")
    assert (line.result, line.unread) == (None, True)


@pytest.mark.words
def test_metrics_that_are_no_finite_numbers_are_told_in_the_log(tmp_path: Path) -> None:
    metrics = {"loss": math.nan, "per_class": [0.5, math.inf], "accuracy": 0.9}
    (tmp_path / "metrics.json").write_text(json.dumps(metrics), "utf-8")
    line = understand(metrics_line(tmp_path) or "")
    assert line.result == {"loss": None, "per_class": [0.5, None], "accuracy": 0.9}
    assert line.text.endswith(": loss, per_class")
    many = {f"m{number}": number for number in range(66)}
    line = understand(json.dumps({"event": "result", "metrics": many}))
    assert line.text.endswith(": m63, m64, m65")
    assert line.result == {"marks": ["metrics_left_out"]} | dict([*many.items()][:63])
    line = understand(json.dumps({"event": "result", "metrics": many | {"marks": ["own"]}}))
    assert line.text.endswith(": m63, m64, m65")
    assert (line.result or {})["marks"] == ["metrics_left_out", "own"]


def test_a_program_needs_no_metrics(tmp_path: Path) -> None:
    assert metrics_line(tmp_path) is None


@pytest.mark.posix  # the sandbox is
def test_the_agents_path_alone_chooses_what_runs_outside_the_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("env", "bwrap"):
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    view = sandbox.View(tmp_path, (), ())
    outer = sandbox.sandboxed(["true"], view)[:3]
    assert outer == [str(tmp_path / "env"), "--ignore-signal=TERM", str(tmp_path / "bwrap")]
    monkeypatch.setenv("PATH", "")
    assert all(one.startswith(("/", "--")) for one in sandbox.sandboxed(["true"], view)[:3])
