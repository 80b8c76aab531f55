"""The hosts on the screen: which, in which order, and what each column says of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker.protocol.messages import Gpu
from broker.sentences import printable
from coordinator.client.seen import HostSeen, Snapshot
from coordinator.jobs import host_condition
from coordinator.top.layout import (
    BAD,
    BUSY,
    DIM,
    GOOD,
    NOTHING,
    PLAIN,
    WARN,
    Cell,
    Column,
    meter,
    used,
)
from coordinator.top.table import Kind
from coordinator.ui.terminal import ago, first_line, told

# What the filter by state leads through.
KINDS: Final = ("all", "busy", "idle", "barred", "away")


@dataclass(frozen=True, slots=True)
class HostLine:
    """One host; `jobs` says in words what it holds."""

    host: HostSeen
    jobs: tuple[str, ...]

    @property
    def key(self) -> str:
        """What it is known by."""
        return self.host.name

    @property
    def remark(self) -> Cell | None:
        """A host's columns are all its own."""
        return None

    @property
    def barred(self) -> tuple[str, ...]:
        """Why the coordinator gives it no jobs."""
        return tuple(str(why) for why in self.host.row.get("barred") or ())

    @property
    def lifted_by_resume(self) -> tuple[str, ...]:
        """What a resume would lift of that, without naming it as the remedy."""
        return tuple(str(why) for why in self.host.row.get("lifted_by_resume") or ())

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Its CUDA devices, as they are now if that is known."""
        heartbeat, capability = self.host.heartbeat, self.host.capability
        if heartbeat is not None and heartbeat.gpus and self.host.online:
            return heartbeat.gpus
        return capability.gpus if capability else ()


def lines(seen: Snapshot) -> list[HostLine]:
    """Return all hosts."""
    return [HostLine(host, _holds(host, seen)) for host in seen.hosts.values()]


def _holds(host: HostSeen, seen: Snapshot) -> tuple[str, ...]:
    words = []
    for held in host.heartbeat.jobs if host.heartbeat else ():
        row = seen.jobs.get(held.job_id)
        name = printable(row.name) if row else held.job_id[:12]
        words.append(name if held.phase == "running" else f"{name} ({held.phase})")
    return tuple(words)


def is_of(line: HostLine, kind: str) -> bool:
    """Tell whether a host is of a kind, one of `KINDS`."""
    online = line.host.online
    match kind:
        case "busy":
            return online and bool(line.jobs)
        case "idle":
            return online and not line.jobs
        case "barred":
            return bool(line.barred or line.host.refuses)
        case "away":
            return not online
    return True


def bears(line: HostLine, text: str) -> bool:
    """Tell whether a text, in lower case, is in what one may look for a host by."""
    capability = line.host.capability
    words = (
        line.host.name, line.host.condition, *line.jobs, *line.barred,
        *((capability.description, capability.os, capability.cpu) if capability else ()),
        *(gpu.name for gpu in line.gpus),
    )  # fmt: skip
    return any(text in word.lower() for word in words)


def gpu_use(line: HostLine) -> float | None:
    """Return the use of the busiest GPU in percent."""
    if not line.host.online:
        return None
    return max((gpu.use_percent for gpu in line.gpus if gpu.use_percent is not None), default=None)


def cpu_use(line: HostLine) -> float | None:
    """Return the use of all cores in percent."""
    heartbeat = line.host.heartbeat
    return heartbeat.cpu_percent if heartbeat and line.host.online else None


def _trouble(line: HostLine) -> int:
    order = (BAD, WARN, DIM, BUSY, GOOD)
    return order.index(_status(line, 0)[1])


ORDERS: Final[Mapping[str, Callable[[HostLine], Any]]] = {
    "name": lambda line: line.key,
    "use": lambda line: (-(gpu_use(line) or 0.0), -(cpu_use(line) or 0.0), line.key),
    "trouble": lambda line: (_trouble(line), line.key),
}


def _status(line: HostLine, _width: int) -> Cell:
    word = line.host.condition
    return word, host_condition.tone(word)


def _ram(line: HostLine, _width: int) -> Cell:
    heartbeat, capability = line.host.heartbeat, line.host.capability
    if heartbeat is None or capability is None or not line.host.online:
        return NOTHING
    return used(heartbeat.ram_available_bytes, capability.ram_total_bytes)


def _vram(line: HostLine, _width: int) -> Cell:
    known = [gpu for gpu in line.gpus if gpu.vram_free_bytes is not None and gpu.vram_total_bytes]
    if not known or not line.host.online:
        return NOTHING
    free = sum(gpu.vram_free_bytes or 0 for gpu in known)
    return used(free, sum(gpu.vram_total_bytes or 0 for gpu in known))


def _power(line: HostLine, _width: int) -> Cell:
    known = [gpu.power_w for gpu in line.gpus if gpu.power_w is not None]
    return (f"{sum(known):.0f}W", PLAIN) if known and line.host.online else NOTHING


def _gpu_name(line: HostLine, _width: int) -> Cell:
    names = [printable(gpu.name) or "CUDA" for gpu in line.gpus]
    if not names:
        return NOTHING
    return (f"{len(names)} x " if len(names) > 1 else "") + names[0], DIM


def _load(line: HostLine, _width: int) -> Cell:
    heartbeat = line.host.heartbeat
    if heartbeat is None or heartbeat.load_1m is None or not line.host.online:
        return NOTHING
    return f"{heartbeat.load_1m:.1f}", PLAIN


def _at_work(line: HostLine, _width: int) -> Cell:
    if line.jobs:
        return ", ".join(line.jobs), PLAIN if line.host.online else DIM
    if line.barred:
        return told(line.barred[0]), WARN
    if not line.host.online:
        seen = line.host.row.get("last_seen")
        return (f"seen {ago(str(seen))}" if seen else "never seen"), DIM
    return (first_line(line.host.refuses, 200), WARN) if line.host.refuses else ("idle", DIM)


def _meter(title: str, use: Callable[[HostLine], float | None], *, rank: int) -> Column[HostLine]:
    def cell(line: HostLine, width: int) -> Cell:
        return meter(use(line), width)

    return Column(title, 4, cell, right=True, grows=1, most=15, rank=rank)


COLUMNS: Final[tuple[Column[HostLine], ...]] = (
    Column("HOST", 13, lambda line, _: (line.key, PLAIN), grows=1, most=24),
    Column("STATUS", 10, _status),
    _meter("CPU", cpu_use, rank=1),
    Column("LOAD", 5, _load, right=True, since=110),
    Column("RAM", 9, _ram, right=True, rank=3),
    _meter("GPU", gpu_use, rank=2),
    Column("VRAM", 8, _vram, right=True, rank=4),
    Column("POWER", 5, _power, right=True, rank=5),
    Column("DEVICE", 16, _gpu_name, since=130, grows=1, most=24),
    Column("JOB", 15, _at_work, grows=4),
)
TABLE: Final[Kind[HostLine]] = Kind("hosts", COLUMNS, ORDERS, KINDS, is_of, bears)
