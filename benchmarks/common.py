"""What every benchmark prints beside its figures: the machine, the versions, a table of medians."""

from __future__ import annotations

import math
import os
import platform
import statistics
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import psutil


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


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in markdown, as README.md holds it."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


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
