"""A machine's memory, processors, battery and terminals: on Linux, from the system's own files.

Elsewhere psutil tells. It takes 0.6 MiB, which an agent on Linux does without until it has to look
for processes of others.
"""

from __future__ import annotations

import functools
import os
import re
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_MEMORY: Final = re.compile(rb"^(MemTotal|MemAvailable):\s+(\d+) kB", re.MULTILINE)
_PROCESSORS: Final = "/sys/devices/system/cpu"
_SIBLINGS: Final = ("topology/core_cpus_list", "topology/thread_siblings_list")  # new, and old
_POWER: Final = "/sys/class/power_supply"
# utmp(5): type and pid, the terminal, and what is of no use here.
_USER: Final = struct.Struct("hxxi32s344x")
_USER_PROCESS: Final = 7


def memory() -> tuple[int, int]:
    """Return the bytes of memory, and how many of them a program could have now."""
    if sys.platform == "linux":
        found = {name: int(kib) << 10 for name, kib in _MEMORY.findall(_read("/proc/meminfo"))}
        if b"MemTotal" in found and b"MemAvailable" in found:
            return found[b"MemTotal"], found[b"MemAvailable"]
    import psutil

    told = psutil.virtual_memory()
    return told.total, told.available


class Busy:
    """How much of all processors is used, between one question and the next."""

    def __init__(self) -> None:
        """Begin."""
        self._before = _times()

    def percent(self) -> float:
        """Return it, in percent, as of the last question."""
        before, self._before = self._before, _times()
        idle, whole = (now - then for now, then in zip(self._before, before))
        return round(min(100.0, max(0.0, 100 * (1 - idle / whole))), 1) if whole > 0 else 0.0


def _times() -> tuple[float, float]:
    """Return how long the processors were idle, and all of their time, in one unit."""
    if sys.platform == "linux":
        line = _read("/proc/stat").partition(b"\n")[0]
        # What guests take, the fields after these, is in `user` as well.
        if times := [float(cell) for cell in line.split()[1:9]]:
            _user, _nice, _system, idle, iowait, *_ = times
            return idle + iowait, sum(times)
    import psutil

    told = psutil.cpu_times()
    return told.idle, sum(told)


def load_1m() -> float:
    """Return how many processes ran or waited to, over the last minute."""
    if sys.platform == "win32":
        import psutil

        return psutil.getloadavg()[0]
    return os.getloadavg()[0]


@functools.cache  # they are counted in a file for each
def suspended_s() -> float | None:
    """Return for how long the machine has slept since it booted, where the system tells."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic())


def physical_cores() -> int:
    """Return the physical cores, or what can be known of them."""
    if sys.platform == "linux":
        for name in _SIBLINGS:
            if cores := {_read(path) for path in Path(_PROCESSORS).glob(f"cpu[0-9]*/{name}")}:
                return len(cores)
    import psutil

    return psutil.cpu_count(logical=False) or psutil.cpu_count() or 1


def has_battery() -> bool:
    """Whether the machine has a battery."""
    if sys.platform == "linux":
        supplies = Path(_POWER).glob("*")
        if not any("bat" in path.name.lower() for path in supplies):
            return False
    import psutil

    try:
        return getattr(psutil, "sensors_battery", lambda: None)() is not None
    except (OSError, RuntimeError):
        return False


def terminals(utmp: Path = Path("/var/run/utmp")) -> Iterator[Path]:
    """Yield the devices of the terminals at which somebody is logged in; POSIX alone has any."""
    if sys.platform == "linux":
        text = _read(utmp)
        whole_bytes = len(text) // _USER.size * _USER.size
        for kind, _, line in _USER.iter_unpack(text[:whole_bytes]):
            if kind == _USER_PROCESS:
                yield Path("/dev") / os.fsdecode(line.partition(b"\0")[0] or b"-")
    else:
        import psutil

        for user in psutil.users():
            yield Path("/dev") / (user.terminal or "-")


def _read(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
