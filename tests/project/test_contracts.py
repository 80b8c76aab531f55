"""The import contracts of pyproject.toml: a breach of one is seen."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("agent", "broker", "coordinator")

pytestmark = pytest.mark.system


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [program, "--no-cache"],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The three rooms and their contracts, to be spoiled."""
    for room in ROOMS:
        shutil.copytree(
            ROOT / room, tmp_path / room,
            ignore=shutil.ignore_patterns("__pycache__", "static", "*.png"),
        )  # fmt: skip
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("coordinator/scheduler/rules.py", "import time", "pure"),
        ("broker/figures.py", "import os", "pure"),  # the core imports it
        ("broker/protocol/topic_table.py", "import broker.system.files", "packages of broker"),
        ("coordinator/ledger/ledger.py", "import sqlite3", "one importer of sqlite3"),
        ("coordinator/jobs/states.py", "import coordinator.jobs.jobs", "no import cycle"),
    ],
    ids=["a clock", "through another module", "upwards", "a second importer", "a cycle"],
)
def test_a_breach_is_seen(copy: Path, module: str, line: str, contract: str) -> None:
    """Whoever adds such an import is told which contract it breaks."""
    path = copy / module
    text = path.read_text("utf-8")
    path.write_text(f"{text}\n{line}  # noqa\n", "utf-8")
    done = _lint(copy)
    assert done.returncode == 1, done.stdout
    broken = [one for one in done.stdout.splitlines() if one.endswith("BROKEN")]
    assert any(one.startswith(contract) for one in broken), done.stdout


def test_the_tree_keeps_them(copy: Path) -> None:
    done = _lint(copy)
    assert done.returncode == 0, done.stdout
