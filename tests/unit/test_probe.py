"""What the agent asks torch when it starts: of no GPU, no more than whether torch would load."""

from __future__ import annotations

import ctypes
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.capability import probe_torch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="its libraries end in .so")

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
    """A torch that the probe finds."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Torch(tmp_path)


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
    """Whoever has NVIDIA's driver may have a GPU."""
    (tmp_path / "libcuda.so.1").symlink_to(math.__file__)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert _names(probe_torch()) == ["Seen"]


def test_a_torch_for_other_cards_is_asked_without_nvidias_driver(torch: Torch) -> None:
    """AMD's need none."""
    torch.is_for(hip="7.1")
    assert _names(probe_torch()) == ["Seen"]


def test_a_torch_that_does_not_load_trains_nothing(torch: Torch) -> None:
    """It is told when the agent starts, and not by the first job."""
    torch.library.unlink()
    torch.has("raise ImportError('libgomp.so.1: cannot open shared object file')")
    found = probe_torch()
    assert found["problem"] == "torch could not be asked: its process crashed"
    assert found["trainers"] == {}
