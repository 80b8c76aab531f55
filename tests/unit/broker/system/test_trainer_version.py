"""A trainer of one's own is another version where its code, or what it reads, is another."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.system.trainer_settings import OwnTrainer
from broker.system.trainer_version import Versions


def trainer(*command: str, reads: tuple[Path, ...] = (), telemetry: bool = False) -> OwnTrainer:
    return OwnTrainer(
        command=command, schema={}, reads=tuple(map(str, reads)), telemetry=telemetry
    )  # fmt: skip


def version(one: OwnTrainer) -> str:
    return Versions({"own": one}).look()["own"]


def home(folder: Path) -> OwnTrainer:
    """A trainer in a folder of its own: a script, a module that it imports, and data."""
    (folder / "lib" / "__pycache__").mkdir(parents=True)
    (folder / "train.py").write_text("import lib.net")
    (folder / "lib" / "net.py").write_text("LAYERS = 3")
    reads = (folder / "lib",)
    return trainer(sys.executable, str(folder / "train.py"), "--fast", reads=reads)


@pytest.mark.parametrize(
    ("change", "is_other"),
    [
        (lambda at: (at / "train.py").write_text("import lib.new"), True),
        (lambda at: (at / "lib" / "net.py").write_text("LAYERS = 4"), True),
        (lambda at: (at / "lib" / "net.py").rename(at / "lib" / "moved.py"), True),
        (lambda at: (at / "lib" / "more.py").touch(), True),
        (lambda at: os.utime(at / "train.py", ns=(1, 1)), False),
        (lambda at: (at / "lib" / "__pycache__" / "net.pyc").touch(), False),
        (lambda at: (at / "lib" / ".git").mkdir(), False),
        (lambda at: (at / "beside.txt").touch(), False),
    ],
)
def test_an_edited_file_is_another_version(
    tmp_path: Path, change: Callable[[Path], object], *, is_other: bool
) -> None:
    seen = Versions({"own": home(tmp_path)})
    before = seen.look()["own"]
    change(tmp_path)
    assert (seen.look()["own"] != before) == is_other
    assert seen.look() == seen.known


def test_on_every_host_the_same_files_are_the_same_version(tmp_path: Path) -> None:
    here, there = home(tmp_path / "here"), home(tmp_path / "there")
    command = ("py", there.command[1], "attic")
    assert version(here) == version(there.model_copy(update={"command": command}))
    for change in ({"telemetry": True}, {"reads": ()}, {"command": ("py", "-c", "x" * 5000)}):
        assert version(here) not in {"", version(here.model_copy(update=change))}


def test_a_program_without_a_script_counts_itself(tmp_path: Path) -> None:
    program = tmp_path / "train"
    program.write_text("#!/bin/sh")
    before = version(trainer(str(program)))
    program.write_text("#!/bin/bash")
    assert before not in {"", version(trainer(str(program)))}


def test_what_cannot_be_read_has_no_version(tmp_path: Path) -> None:
    assert version(trainer(sys.executable, reads=(tmp_path / "none",))) == ""
