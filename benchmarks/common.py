"""What the benchmarks share: machine and versions, tables of medians, processes, options, data."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

import psutil

MIB: Final = 1 << 20


def machine(*packages: str) -> str:
    """Return one line: processor, cores, memory, load, Python, and the versions of `packages`."""
    parts = [
        _processor(),
        f"{os.cpu_count()} cores",
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        f"load {os.getloadavg()[0]:.1f}",
        platform.platform(terse=True),
        f"Python {platform.python_version()}",
        *(f"{name} {_version(name)}" for name in packages),
    ]
    return ", ".join(parts)


def median(values: Sequence[float]) -> str:
    """Return the median of `values` with their range, in three digits."""
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value that `percent` of `values` do not exceed (nearest rank)."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(len(ranked) * percent / 100) - 1)]


def line(cells: Iterable[object]) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(map(str, cells))} |"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in markdown, as README.md holds it."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(map(line, lines))


def cpu_s(pid: int) -> float:
    """Return the seconds of a core that a process and its children have used; 0 once it is gone."""
    total = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                total += times.user + times.system
    return total


def rss_mib(pid: int) -> float:
    """Return a process's resident memory."""
    return float(psutil.Process(pid).memory_info().rss) / MIB


def peak_mib(pid: int) -> float:
    """Return the most memory that a process has had; ru_maxrss would count its parent's as well."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def words(text: str) -> list[str]:
    """Parse an option: words between commas."""
    return [one.strip() for one in text.split(",") if one.strip()]


def numbers(text: str) -> list[int]:
    """Parse an option: whole numbers between commas."""
    return [int(one) for one in words(text)]


def prepared(folder: Path, hosts: int, episodes: int, rows: int) -> Path:
    """Simulate telemetry and prepare it in `folder`; return where it is."""
    from agent.trainer.prepare import prepare
    from agent.trainer.simulate import simulate

    raw, schema = simulate(folder / "raw", hosts=hosts, episodes=episodes, rows=rows, seed=0)
    prepare(raw, schema, folder / "data", window=60, stride=10, log=lambda _: None)
    return folder / "data"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if os.name == "posix" else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
