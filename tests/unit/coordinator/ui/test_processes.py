"""Children of `fleet up`: what is told of one that has ended."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from broker.errors import LocalError
from coordinator.ui.processes import Child

pytestmark = pytest.mark.system

NOISY = """\
import sys
for number in range(60_000):
    print(f"{number}: " + "x" * 100, file=sys.stderr)
sys.exit(3)
"""


def _child(folder: Path, program: str) -> Child:
    (folder / "child.py").write_text(program)
    log = folder / "child.log"
    log.write_text("of an earlier run\n")
    return Child("child", "child", [], log, {**os.environ, "PYTHONPATH": str(folder)})


@pytest.mark.words
def test_the_end_of_a_long_log_is_told_without_reading_all_of_it(tmp_path: Path) -> None:
    """Its last fifteen lines, of this run; a small machine has no room for the rest."""
    child = _child(tmp_path, NOISY)
    with pytest.raises(LocalError, match="ended with exit code 3"):
        child.wait_ready(60)
    child.stop(5)
    tracemalloc.start()
    said = child.tail().splitlines()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    log = tmp_path / "child.log"
    assert said[0] == f"{log}:"
    numbers = [line.strip().partition(":")[0] for line in said[1:]]
    assert numbers == [str(number) for number in range(59_985, 60_000)]
    assert peak_bytes < 1024 * 1024 < log.stat().st_size


def test_of_a_short_log_only_what_this_run_said_is_told(tmp_path: Path) -> None:
    child = _child(tmp_path, "import sys\nsys.exit('no luck')\n")
    with pytest.raises(LocalError, match="no luck"):
        child.wait_ready(60)
    child.stop(5)
    assert child.tail() == f"{tmp_path / 'child.log'}:\n  no luck"
