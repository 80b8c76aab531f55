"""Can this host's GPUs be used? Tells a broken driver from a torch that is made for the CPU."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent.host.capability import SMI_TIMEOUT_S
from broker.doctor.findings import Finding, fail, ok, warn
from broker.system.children import answer_of

_PCI: Final = Path("/sys/bus/pci/devices")
_NVIDIA: Final = "0x10de"
_DISPLAY_CLASS: Final = "0x03"  # PCI class of display controllers, 3D ones included
_SWITCH_OFF: Final = "or say `cuda = false` in [agent]"


def check_gpu(torch: Mapping[str, Any], *, wanted: bool, pci: Path = _PCI) -> Finding:
    """Tell whether the GPUs work; `torch` is what the probe said, `pci` where sysfs lists devices.

    A host without a GPU is as good as any. `wanted` is the setting `cuda`.
    """
    if not wanted:
        return ok("gpu", "not used, since [agent] cuda = false")
    if torch["gpus"]:
        names = ", ".join(str(gpu["name"]) for gpu in torch["gpus"])
        return ok("gpu", f"{names} (torch for CUDA {torch['cuda']})")
    if not torch["torch"]:
        return ok("gpu", "not asked, since there is no torch")
    driver, problem = _driver(pci)
    if problem:
        remedy = f"mend the driver (after an update: restart the machine), {_SWITCH_OFF}"
        return fail("gpu", problem, remedy)
    if torch["problem"]:
        return fail("gpu", f"CUDA: {torch['problem']}", f"mend the driver, {_SWITCH_OFF}")
    if driver and not torch["cuda"]:
        remedy = f"install a torch that is made for CUDA, {_SWITCH_OFF}"
        return warn("gpu", f"{driver} is here, but torch {torch['torch']} knows no CUDA", remedy)
    if driver:
        return fail(
            "gpu",
            f"{driver} is here, but torch for CUDA {torch['cuda']} sees no GPU",
            f"may this user use /dev/nvidia*, is the driver as new as that CUDA? {_SWITCH_OFF}",
        )
    return ok("gpu", "no NVIDIA GPU is here; jobs run on the CPU")


def _driver(pci: Path) -> tuple[str, str]:
    """Return what the driver calls the GPUs, and what is wrong with it; empty where nothing is."""
    program = shutil.which("nvidia-smi")
    if program is None:
        if _on_the_bus(pci):
            return "", "an NVIDIA GPU is here, but no driver (there is no nvidia-smi)"
        return "", ""
    try:
        done = answer_of([program, "--query-gpu=name", "--format=csv,noheader"], SMI_TIMEOUT_S)
    except TimeoutError:
        return "", f"the driver does not answer: nvidia-smi took more than {SMI_TIMEOUT_S:.0f} s"
    except OSError as error:
        return "", f"{program} cannot be started: {error.strerror}"
    said = (done.output + done.errors).strip().splitlines()
    if done.code == 0 and said:
        return ", ".join(said)[:200], ""
    if not _on_the_bus(pci) and not said:
        return "", ""
    return "", f"the driver does not work: {said[0][:200] if said else 'nvidia-smi says nothing'}"


def _on_the_bus(pci: Path) -> bool:
    """Tell whether an NVIDIA display controller is plugged in, driver or not (Linux)."""
    for device in pci.glob("*"):
        try:
            vendor = (device / "vendor").read_text("ascii").strip()
            kind = (device / "class").read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if vendor == _NVIDIA and kind.startswith(_DISPLAY_CLASS):
            return True
    return False
