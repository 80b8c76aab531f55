"""The layout of the project's folders: what a reader may rely on when looking for a file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("agent", "broker", "coordinator")
MAX_LINES = 400
REPEATED = {"__init__.py", "__main__.py", "settings.py"}


def _files(folder: str) -> list[Path]:
    return [
        path
        for suffix in ("py", "js", "css", "sql")
        for path in ROOT.glob(f"{folder}/**/*.{suffix}")
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_a_file_name_stands_once_in_a_room(room: str) -> None:
    """A name that somebody mentions leads to one file."""
    names = Counter(path.name for path in _files(room))
    assert [name for name, count in names.items() if count > 1 and name not in REPEATED] == []


@pytest.mark.parametrize("folder", [*ROOMS, "tests", "benchmarks"])
def test_no_file_is_longer_than_a_sitting(folder: str) -> None:
    lines = {str(path): len(path.read_text("utf-8").splitlines()) for path in _files(folder)}
    assert {path: count for path, count in lines.items() if count > MAX_LINES} == {}
