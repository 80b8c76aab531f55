"""A file is hashed by the first job that needs it, and again when it is not as it was."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.trainer.data.schema import sha256_of
from agent.trainer.data.seen_files import FOLDER

pytestmark = pytest.mark.system

# How often a process opens the file, and whether it is whole.
JOB = f"""
import os, sys
from pathlib import Path
from agent.trainer.data.seen_files import is_whole
opened = []
sys.addaudithook(lambda event, told: event == "open" and opened.append(str(told[0])))
whole = [is_whole(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])) for _ in range(2)]
print(opened.count(sys.argv[1]), *whole, len(list(Path(os.environ[{FOLDER!r}]).glob("*"))))
"""
CONTENT = b"some windows " * 1000


def job(path: Path, sha256: str, folder: Path, settled_s: float = 0.0) -> str:
    """Look at a file twice, in a process of its own."""
    command = [sys.executable, "-c", JOB, str(path), sha256, str(settled_s)]
    environment = {**os.environ, FOLDER: str(folder)}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(CONTENT)
    return path


def _touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def _replace(path: Path) -> None:
    shutil.copy2(path, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def _spoil(path: Path) -> None:
    before = path.stat()
    path.write_bytes(b"S" + CONTENT[1:])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (Path.stat, "0 True True 1"),
        (_touch, "1 True True"),
        (_replace, "1 True True"),
        (_spoil, "2 False False 1"),
    ],
)
def test_the_next_job_hashes_a_file_that_is_not_as_it_was(
    change: Callable[[Path], object], found: str, file: Path, tmp_path: Path
) -> None:
    sha256 = sha256_of(file)
    assert job(file, sha256, tmp_path / "seen") == "1 True True 1"
    change(file)
    assert job(file, sha256, tmp_path / "seen").startswith(found)


def test_a_file_that_was_just_written_is_hashed_by_each_job(file: Path, tmp_path: Path) -> None:
    """Within the resolution of its times it may be written to once more."""
    os.utime(file, (1, 1))
    assert job(file, sha256_of(file), tmp_path / "seen", 3600.0) == "1 True True 0"


def test_the_folder_of_notes_does_not_grow(file: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    for number in range(100):
        (seen / str(number)).touch()
        os.utime(seen / str(number), (number, number))
    assert job(file, sha256_of(file), seen) == "1 True True 64"
    assert not (seen / "36").exists()
    assert (seen / "37").exists()
    assert job(file, sha256_of(file), file).startswith("1 True True 0")
