"""What this host is. Torch and xgboost are probed in a child process.

So the daemon stays small, and a broken CUDA driver can crash or hang the child, not the agent.
"""

from __future__ import annotations

import functools
import json
import logging
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import psutil

from agent import __version__
from agent.core.effects import Vitals
from agent.core.output import clean
from agent.host.data_folder import DataFolder
from agent.process.command import PACKAGE_ROOT
from broker.protocol.messages import Capability, Gpu, TrainerInfo
from broker.system.children import answer_of
from broker.system.trainer_settings import OwnTrainer
from broker.system.trainer_version import Versions

log = logging.getLogger("fleet.agent")

PROBE_TIMEOUT_S: Final = 120.0
SMI_TIMEOUT_S: Final = 10.0
GIT_TIMEOUT_S: Final = 5.0

# Importing torch costs seconds (on a Pi, many) and hundreds of megabytes. Where neither NVIDIA's
# driver is nor a torch for AMD, it could see no GPU; then that its libraries load is enough.
_PROBE: Final = """
import ctypes, importlib.metadata as metadata, importlib.util as util, json, runpy, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from agent.trainer.common.config import describe
found = {"torch": None, "xgboost": None, "cuda": None, "gpus": [], "problem": ""}
found["trainers"] = describe()
for name in ("torch", "xgboost"):
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass

def loads(library):
    try:
        ctypes.CDLL(str(library))
    except OSError:
        return False
    return True

def sees_nothing(folder, version):
    if sys.platform == "win32" or version.get("hip") or loads("libcuda.so.1"):
        return False
    ending = "dylib" if sys.platform == "darwin" else "so"
    return loads(folder / "lib" / f"libtorch_python.{ending}")

def look():
    import torch
    try:
        for index in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(index)
            properties = torch.cuda.get_device_properties(index)
            found["gpus"].append({
                "index": index,
                "name": properties.name,
                "uuid": str(getattr(properties, "uuid", "")),
                "vram_total_bytes": total,
                "vram_free_bytes": free,
            })
    except Exception as error:
        found["problem"] = f"{type(error).__name__}: {error}".splitlines()[0][:500]

if found["torch"]:
    folder = Path(util.find_spec("torch").origin).parent
    version = runpy.run_path(str(folder / "version.py"))
    found["cuda"] = version["cuda"]
    if not sees_nothing(folder, version):
        look()
print(json.dumps(found))
"""
_SMI_FIELDS: Final = "index,memory.total,memory.free,utilization.gpu,power.draw"


def probe_capability(
    *,
    slots: int | None,
    cuda: bool,
    description: str = "",
    own: Mapping[str, OwnTrainer],
    work: Path,
) -> Capability:
    """Return what this host is, but for its data, in some seconds.

    `work` is the folder of the agent's files. A fault of torch or CUDA is told, not raised.
    """
    found = probe_torch()
    gpus = _numbered(Gpu.model_validate(gpu) for gpu in found["gpus"]) if cuda else ()
    memory = psutil.virtual_memory()
    return Capability(
        session="-",
        instance="-",
        description=description,
        os=f"{platform.system()} {platform.release()}"[:200],
        arch=platform.machine()[:80] or "unknown",
        python=platform.python_version(),
        cpu=platform.processor()[:200],
        physical_cores=physical_cores(),
        ram_total_bytes=memory.total,
        ram_available_bytes=memory.available,
        disk_free_bytes=shutil.disk_usage(work).free,
        gpus=gpus,
        gpu_problem=found["problem"] if cuda else "",
        torch=found["torch"],
        xgboost=found["xgboost"],
        trainers=_trainers(found, own),
        trainers_commit=_commit(),
        slots=slots or max(1, len(gpus)),
        battery=_has_battery(),
        agent_version=__version__,
    )


def measure(
    data: DataFolder, known: tuple[Gpu, ...], work: Path, versions: Versions | None = None,
    holdings: tuple[str, ...] = (),
) -> Vitals:  # fmt: skip
    """Return what the machine can spare now; waits 10 s each for `nvidia-smi` and the data's disk.

    The share of busy processors is since the last call on this thread.
    """
    return Vitals(
        ram_available_bytes=psutil.virtual_memory().available,
        data_id=data.look(),
        cpu_percent=psutil.cpu_percent(),
        load_1m=load_1m(),
        gpus=_measure_gpus(known) if known else (),
        suspended_s=suspended_s(),
        disk_free_bytes=shutil.disk_usage(work).free,
        versions={} if versions is None else versions.look(),
        holdings=holdings,
    )


class Measurer:
    """Measures on a thread of its own, one at a time; of the questions that wait one is answered.

    So a driver that takes ten seconds is not asked once for each assignment.
    """

    def __init__(
        self,
        data: DataFolder,
        put: Callable[[Vitals], object],
        work: Path,
        versions: Versions | None = None,
        holdings: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        """Start nothing yet; answers go to `put`. `work` is the folder of the agent's files.

        `holdings` returns the digests of datasets and programs that are here.
        """
        self._holdings = holdings
        self._versions = versions
        self._data = data
        self._work = work
        self._put = put
        self._known: tuple[Gpu, ...] = ()
        self._is_asked = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fleet-measure")

    def ask(self, known: tuple[Gpu, ...]) -> None:
        """Have the machine, with its `known` GPUs, measured after now."""
        self._known = known
        if not self._is_asked:
            self._is_asked = True
            self._thread.submit(self._measure)

    def close(self) -> None:
        """Begin nothing any more; what is under way is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _measure(self) -> None:
        self._is_asked = False
        try:
            here = self._holdings()
            self._put(measure(self._data, self._known, self._work, self._versions, here))
        except Exception:  # the next heartbeat asks for it again
            log.exception("the machine could not be measured")


@functools.cache  # psutil reads a file for each of them
def physical_cores() -> int:
    """Return the physical cores, or what can be known of them."""
    return psutil.cpu_count(logical=False) or psutil.cpu_count() or 1


def load_1m() -> float | None:
    """Return the load average of the last minute; none on Windows without performance counters."""
    try:
        return psutil.getloadavg()[0]
    except (OSError, RuntimeError):
        return None


def suspended_s() -> float | None:
    """Return for how long the machine has slept since it booted, where the system tells."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic())


def _has_battery() -> bool:
    try:
        return getattr(psutil, "sensors_battery", lambda: None)() is not None
    except (OSError, RuntimeError):
        return False


def probe_torch() -> dict[str, Any]:
    """Return what torch and xgboost say of themselves, in a process of its own.

    `torch`, `xgboost` and `cuda` are versions or none (`cuda`: what torch was built for), `gpus`
    what torch sees, `problem` what went wrong; `trainers` is what `agent.trainer.common.config`
    describes.
    """
    nothing: dict[str, Any] = {
        "torch": None, "xgboost": None, "cuda": None, "gpus": [], "trainers": {},
    }  # fmt: skip
    try:
        done = answer_of([sys.executable, "-c", _PROBE, str(PACKAGE_ROOT)], PROBE_TIMEOUT_S)
        found: dict[str, Any] = json.loads(done.output.splitlines()[-1])
    except TimeoutError:
        return nothing | {"problem": f"torch did not answer in {PROBE_TIMEOUT_S:.0f} s"}
    except (OSError, ValueError, IndexError):
        return nothing | {"problem": "torch could not be asked: its process crashed"}
    return found


def _trainers(found: Mapping[str, Any], own: Mapping[str, OwnTrainer]) -> dict[str, TrainerInfo]:
    """Return the built-in trainers whose library was found, and this host's own."""
    schemas = {
        model: trainer["schema"]
        for model, trainer in found["trainers"].items()
        if found["xgboost" if model == "gbt" else "torch"] is not None
    } | {name: trainer.hyper_schema for name, trainer in own.items()}
    return {
        name: TrainerInfo(
            hyper_schema={key: clean(value) for key, value in schema.items()},
            resumable=name not in own or own[name].resumable,
            telemetry=name not in own or own[name].telemetry,
        )
        for name, schema in schemas.items()
    }


def said(command: list[str], timeout_s: float) -> str | None:
    """Return what a program prints; none if it is not there, fails, or takes too long."""
    try:
        done = answer_of(command, timeout_s)
    except OSError:  # a TimeoutError is one
        return None
    return done.output if done.code == 0 else None


def _commit() -> str | None:
    """Return the git commit of the trainers, when they run out of a checkout."""
    command = ["git", "-C", str(PACKAGE_ROOT), "rev-parse", "--short=12", "HEAD"]
    text = (said(command, GIT_TIMEOUT_S) or "").strip()
    return text if text.isalnum() else None


def _numbered(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Give GPUs the driver's numbers.

    torch's own begin with the fastest GPU, and leave out what `CUDA_VISIBLE_DEVICES` hides.
    """
    rows = said(["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"], SMI_TIMEOUT_S)
    cells = (row.partition(", GPU-") for row in (rows or "").splitlines())
    numbers = {uuid: int(index) for index, _, uuid in cells if index.isdigit()}
    known = (one.model_copy(update={"index": numbers.get(one.uuid, one.index)}) for one in gpus)
    return tuple(sorted(known, key=attrgetter("index")))


def _measure_gpus(known: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Ask the driver what is free on each GPU, everybody's processes counted."""
    command = ["nvidia-smi", f"--query-gpu={_SMI_FIELDS}", "--format=csv,noheader,nounits"]
    rows = (said(command, SMI_TIMEOUT_S) or "").splitlines()
    measured = {gpu.index: gpu for gpu in map(_smi_row, rows) if gpu is not None}
    blind = {"vram_free_bytes": None, "use_percent": None, "power_w": None}
    return tuple(
        measured[gpu.index].model_copy(update={"name": gpu.name, "uuid": gpu.uuid})
        if gpu.index in measured
        else gpu.model_copy(update=blind)
        for gpu in known
    )


def _smi_row(row: str) -> Gpu | None:
    """Read one line of nvidia-smi's; every field may be N/A (Windows, WSL)."""
    cells = [cell.strip() for cell in row.split(",")]
    if len(cells) != len(_SMI_FIELDS.split(",")) or not cells[0].isdigit():
        return None
    total, free, use, power = (_number(cell) for cell in cells[1:])
    mib = 1024**2
    return Gpu(
        index=int(cells[0]),
        vram_total_bytes=None if total is None else int(total * mib),
        vram_free_bytes=None if free is None else int(free * mib),
        use_percent=use,
        power_w=power,
    )


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if value >= 0 else None
