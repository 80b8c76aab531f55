"""What the agent asks torch when it starts: of no GPU, no more than whether torch would load."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import agent
from agent.core.effects import Vitals
from agent.host.capability import Measurer, measure, probe_capability, probe_torch
from agent.host.data_folder import DataFolder
from broker.system.children import answer_of
from tests.harness.waiting import wait_until

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="its libraries end in .so"),
]

GPU = """
class cuda:
    device_count = staticmethod(lambda: 1)
    mem_get_info = staticmethod(lambda index: (1, 2))
    get_device_properties = staticmethod(lambda index: cuda)
    name, uuid = "Seen", "u"
"""


def _driver_here() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


class Torch:
    """A torch of the test's own, ahead of the real one; importing it shows a GPU, or fails."""

    def __init__(self, folder: Path) -> None:
        self.package = folder / "torch"
        (self.package / "lib").mkdir(parents=True)
        (folder / "torch-9.0.dist-info").mkdir()
        (folder / "torch-9.0.dist-info" / "METADATA").write_text("Name: torch\nVersion: 9.0\n")
        self.is_for(cuda="13.0")
        self.has(GPU)
        self.library.symlink_to(math.__file__)

    @property
    def library(self) -> Path:
        return self.package / "lib" / "libtorch_python.so"

    def is_for(self, cuda: str | None = None, hip: str | None = None) -> None:
        (self.package / "version.py").write_text(f"cuda = {cuda!r}\nhip = {hip!r}\n")

    def has(self, code: str) -> None:
        (self.package / "__init__.py").write_text(code)


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Torch:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Torch(tmp_path)


# Another process traces it, and does not let go: so it is not over when it is killed, as one that
# waits for a driver.
STUCK = """
import ctypes, os, pathlib, sys, time
me, (ready, said) = os.getpid(), os.pipe()
if os.fork() == 0:
    os.setsid()
    for number in range(3):
        os.close(number)
    traces = ctypes.CDLL(None).ptrace(0x4206, me, None, None) == 0  # PTRACE_SEIZE
    pathlib.Path(sys.argv[1]).write_text(str(os.getpid() if traces else 0))
    os.write(said, b"x")
    time.sleep(20)
    os._exit(0)
os.read(ready, 1)
time.sleep(60)
"""


def test_a_program_that_nothing_ends_holds_nobody_up(tmp_path: Path) -> None:
    """As nvidia-smi at a driver that hangs; it is asked again once that has let go."""
    program, tracer = tmp_path / "program.py", tmp_path / "tracer"
    program.write_text(STUCK)
    command = [sys.executable, str(program), str(tracer)]
    begun_s = time.monotonic()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            answer_of(command, 5.0)
    took_s, process = time.monotonic() - begun_s, int(tracer.read_text())
    if not process:
        pytest.skip("no process may trace another here")
    assert took_s < 12, "two of them were told at once"
    os.kill(process, signal.SIGKILL)
    program.write_text("print('well')")

    def is_well() -> bool:
        with contextlib.suppress(TimeoutError):
            return answer_of(command, 20.0).output == "well\n"
        return False

    wait_until(is_well, "it is not asked again")


def _names(found: dict[str, Any]) -> list[str]:
    return [gpu["name"] for gpu in found["gpus"]]


@pytest.mark.skipif(_driver_here(), reason="NVIDIA's driver is here")
def test_without_a_driver_torch_is_not_imported(torch: Torch) -> None:
    """It could see nothing, and its import costs a small host half a minute."""
    found = probe_torch()
    assert (found["torch"], found["cuda"], found["gpus"]) == ("9.0", "13.0", [])
    assert "mlp" in found["trainers"]
    assert not found["problem"]


def test_with_a_driver_torch_says_what_it_sees(
    torch: Torch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libcuda.so.1").symlink_to(math.__file__)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert _names(probe_torch()) == ["Seen"]


def test_a_torch_for_other_cards_is_asked_without_nvidias_driver(torch: Torch) -> None:
    torch.is_for(hip="7.1")
    assert _names(probe_torch()) == ["Seen"]


def test_an_agent_that_cannot_tell_what_its_host_is_says_why(torch: Torch, tmp_path: Path) -> None:
    """It takes no jobs; nobody else would hear of the reason."""
    torch.is_for(hip="7")
    torch.has(GPU.replace('"Seen"', '"x" * 300'))
    command = [sys.executable, "-m", "agent.service", "--broker", "mqtt://127.0.0.1:1",
               "--state", str(tmp_path / "state")]  # fmt: skip
    home = Path(agent.__file__).parents[1]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=home) as started:
        alarm = threading.Timer(20.0, started.kill)
        alarm.start()
        assert started.stderr is not None
        told = any("at most 200 characters" in line for line in started.stderr)
        alarm.cancel()
        started.kill()
    assert told


TWO_GPUS = """
class Properties:
    def __init__(self, name): self.name = self.uuid = name
class cuda:
    device_count = staticmethod(lambda: 2)
    mem_get_info = staticmethod(lambda index: (1, 2))
    get_device_properties = staticmethod(lambda index: Properties(("fast", "slow")[index]))
"""


def test_a_gpu_has_the_number_that_the_driver_gives_it(
    torch: Torch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For torch the fastest is the first; nvidia-smi, which tells the figures, counts otherwise."""
    torch.is_for(hip="7.1")
    torch.has(TWO_GPUS)
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\nprintf '0, GPU-other\\n1, GPU-slow\\n2, GPU-fast\\n'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    found = probe_capability(slots=None, cuda=True, own={}, work=tmp_path)
    assert [(gpu.index, gpu.name) for gpu in found.gpus] == [(1, "slow"), (2, "fast")]


def test_a_torch_that_does_not_load_trains_nothing(torch: Torch) -> None:
    """It is told when the agent starts, and not by the first job."""
    torch.library.unlink()
    torch.has("raise ImportError('libgomp.so.1: cannot open shared object file')")
    found = probe_torch()
    assert found["problem"] == "torch could not be asked: its process crashed"
    assert found["trainers"] == {}


def test_a_windows_without_performance_counters_is_measured_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Psutil computes the load from them there, and raises this without them."""

    def refuse() -> None:
        raise RuntimeError("PdhAddEnglishCounterW failed. Performance counters may be disabled.")

    monkeypatch.setattr("psutil.getloadavg", refuse)
    vitals = measure(DataFolder(tmp_path), (), tmp_path)
    assert vitals.load_1m is None
    assert vitals.ram_available_bytes > 0


def test_a_slow_driver_is_not_asked_once_for_each_question(tmp_path: Path) -> None:
    """What is asked for while the machine is measured is measured again, once."""
    begun, driver, over = threading.Event(), threading.Event(), threading.Event()

    def put(_: Vitals) -> None:
        (over if begun.is_set() else begun).set()
        assert driver.wait(60)
        answers.append(1)

    answers: list[int] = []
    measurer = Measurer(DataFolder(tmp_path), put, tmp_path)
    measurer.ask(())
    assert begun.wait(60)
    for _ in range(3):
        measurer.ask(())
    driver.set()
    assert over.wait(60)
    wait_until(lambda: len(answers) == 2, "it is not measured again")
    measurer.close()
