"""Windows: what its system is told of a job object, and how the trainers in one end."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import psutil
import pytest

from agent.process import job_object


def test_the_layout_of_a_job_object_is_that_of_windows() -> None:
    """On 64 bits: 64 and 144 bytes, the flags at 16. A wrong size is refused by the system."""
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        pytest.skip("the figures are those of 64 bits")
    assert ctypes.sizeof(job_object.BasicLimits) == 64
    assert ctypes.sizeof(job_object.ExtendedLimits) == 144
    assert job_object.BasicLimits.LimitFlags.offset == 16


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "win32", reason="job objects are Windows'")
@pytest.mark.parametrize("asked", [False, True], ids=["ended", "asked first"])
def test_a_trainer_that_is_ended_has_not_succeeded(tmp_path: Path, *, asked: bool) -> None:
    """Its exit code is not that of success, and what it has started ends with it."""
    inner = "import time; time.sleep(300)"
    code = (
        "import subprocess, sys; "
        f"print(subprocess.Popen([sys.executable, '-c', '{inner}']).pid, flush=True); {inner}"
    )
    starter = job_object.Starter()
    started = starter.start([sys.executable, "-c", code], os.environ, tmp_path)
    with started.output as output:
        grandchild = psutil.Process(int(output.readline()))
    if asked:
        started.signal(15)
    else:
        started.let_go()
    assert started.await_end() != 0
    started.end_rest()
    grandchild.wait(30)
