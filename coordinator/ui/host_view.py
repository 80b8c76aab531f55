"""What there is to say of a host: how it is now, and what it is."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from broker.figures import size
from broker.protocol.messages import Capability, Gpu, ProgramsAllowed
from coordinator.client.mirror import HostSeen
from coordinator.client.rows import Row
from coordinator.ui.facts import Fact, Link, Moment, Value


def now(host: HostSeen, row: Row) -> Iterator[Fact]:
    """Yield how a host is; of one that is away, how it was last."""
    made, beat = host.capability, host.heartbeat
    yield "Heard", Moment(row["seen"])
    yield "Job", _job(row)
    yield "Slots", f"{row['jobs']} of {row['slots']} in use" if row["slots"] > 1 else ""
    yield "CPU", "" if row["cpu"] is None else f"{row['cpu']:.0f} %"
    yield "RAM", _of(row["ram_used"], row["ram_total"])
    for gpu in (beat.gpus if beat else ()) or (made.gpus if made else ()):
        yield f"GPU {gpu.index}", _gpu(gpu)
    yield "GPU problem", Text(made.gpu_problem if made else "", "yellow")


def what_it_is(made: Capability) -> Iterator[Fact]:
    """Yield what a host has told of itself."""
    cpu = [made.description, made.cpu, f"{made.physical_cores} cores"]
    libraries = (("torch", made.torch), ("xgboost", made.xgboost))
    yield "Is", _listed(*cpu, "battery" if made.battery else "")
    yield "Data", made.data_id or Text("no prepared data", "yellow")
    yield "Trainers", ", ".join(sorted(made.trainers)) or "none"
    yield "Libraries", _listed(*(f"{name} {version}" for name, version in libraries if version))
    yield "Programs", admitted(made.programs)
    yield "System", f"{made.os}, {made.arch}, Python {made.python}"
    ends = (made.certificate_expires_at or "")[:10]
    yield "Agent", _listed(made.agent_version, f"its certificate ends {ends}" if ends else "")


def admitted(programs: ProgramsAllowed | None) -> str:
    """Return which programs a host's owner lets in, and how they run."""
    if programs is None:
        return "none"
    said = [f"signed by {', '.join(programs.signed_by)}"] if programs.signed_by else []
    said += [f"{len(programs.pinned)} pinned"] if programs.pinned else []
    said += ["unsigned"] if programs.unsigned else []
    how = "without a sandbox" if programs.sandbox == "none" else f"in {programs.sandbox}"
    return f"{'; '.join(said)}; {how}"


def _job(row: Row) -> Value:
    """Return what it is at: a link, where that is one job."""
    if row["jobs"] == 1 and row["job_id"]:
        return Link(row["doing"], f"/job/{row['job_id']}")
    if row["jobs"]:
        return str(row["doing"] or f"{row['jobs']} held")
    return ("ending" if row["ending"] else "idle") if row["online"] else ""


def _gpu(gpu: Gpu) -> str:
    free, total = gpu.vram_free_bytes, gpu.vram_total_bytes
    use = "" if gpu.use_percent is None else f"{gpu.use_percent:.0f} %"
    power = "" if gpu.power_w is None else f"{gpu.power_w:.0f} W"
    used = None if total is None or free is None else max(0, total - free)
    return _listed(gpu.name or "CUDA", _of(used, total), use, power)


def _of(used: int | None, total: int | None) -> str:
    if total is None:
        return ""
    return size(total) if used is None else f"{size(used)} of {size(total)}"


def _listed(*parts: str) -> str:
    return ", ".join(filter(None, parts))
