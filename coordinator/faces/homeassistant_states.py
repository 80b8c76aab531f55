"""What Home Assistant is shown of the fleet and of each host: from the core's world to messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, get_args

from broker.clock import Now, rfc3339
from broker.protocol.messages import Gpu, HeldJob, HomeFleet, HomeHost, HomeJob, Progress
from broker.protocol.messages.homeassistant import FleetState, HostState
from coordinator.core import filing, run_times
from coordinator.core.commands.host_commands import condition
from coordinator.core.state import World
from coordinator.jobs import job_progress
from coordinator.jobs.hosts import Host
from coordinator.jobs.jobs import Job
from coordinator.jobs.reason_words import words
from coordinator.jobs.records import HostRecord
from coordinator.jobs.states import FINAL, JobState
from coordinator.jobs.waiting_words import low_disk

GIB: Final = 1024**3
NAMED: Final = 8  # so many jobs or problems are told by name
SHOWN_CHARS: Final = 250
SOON_S: Final = 600.0
_WORDS: Final = frozenset(get_args(HostState))
_FAULTS: Final = {
    "cut-off": "its connection ended without a goodbye",
    "silent": "nothing is heard of it, and the broker did not tell why",
    "twins": "two agents use its name",
}


def held_by_host(world: World) -> dict[str, list[Job]]:
    """Return the jobs that each host holds, in the order in which they were begun."""
    held: dict[str, list[Job]] = {}
    for job in world.book.in_state(JobState.CLAIMED, JobState.RUNNING):
        held.setdefault(job.host or "", []).append(job)
    for jobs in held.values():
        jobs.sort(key=lambda job: (job.started_at or "~", job.spec.name))
    return held


def host_state(
    world: World, host: Host, held: list[Job], energy_kwh: float | None, now: Now
) -> HomeHost:
    """Return what is shown of a host that holds these jobs."""
    record = world.record(host.name)
    problems = _problems(host, record, now)
    beat = host.heartbeat
    beats = {(one.job_id, one.attempt): one for one in beat.jobs} if beat else {}
    jobs = [
        _job(job, host.progress.get(job.job_id), beats.get((job.job_id, job.attempt)))
        for job in held
    ]
    # The job that takes longest; unknown as long as one of them is.
    left_s = [run_times.left_s(world, job, now) for job in held]
    known_s = [now.wall_s + one for one in left_s if one is not None]
    eta_s = max(known_s) if held and len(known_s) == len(held) else None
    shares = [job.progress or 0.0 for job in jobs]
    return HomeHost.model_validate(
        {
            "state": _word(world, host, held, now),
            "online": host.online,
            "accepts": not record.drained,
            "problem": bool(problems),
            "problems": tuple(problems),
            "job": _named(job.spec.name for job in held) or "idle",
            "jobs": tuple(jobs[:NAMED]),
            "progress": int(100 * sum(shares) / len(shares)) if shares else 0,
            "eta": None if eta_s is None else _moment(eta_s, now),
            "time_left_min": _minutes(eta_s, now) if held else 0.0,
            "energy_kwh": energy_kwh,
        }
        | _measures(host)
    )


def fleet_state(world: World) -> HomeFleet:
    """Return what is shown of the fleet."""
    planned, final = world.book.planned().total(), sum(ended(world).values())
    counts = world.book.counts()
    failed = [job.spec.name for job in world.book.in_state(JobState.FAILED) if job.in_plan]
    problems = [f"{len(failed)} failed: {_named(failed)}"] if failed else []
    quarantined = [name for name, record in world.records.items() if record.quarantine]
    if quarantined:
        problems.append(f"in quarantine: {_named(sorted(quarantined))}")
    if (lack := filing.all_lack(world)) is not None:
        problems.append(low_disk(lack.model_dump()))
    at_work = counts["claimed"] + counts["running"]
    open_jobs = planned - final
    return HomeFleet(
        state=_fleet_word(at_work, open_jobs, paused=world.fleet.paused),
        problem=bool(problems),
        problems=tuple(_short(problem) for problem in problems),
        jobs=counts,
        progress=100 * final // planned if planned else 100,
        hosts_online=sum(host.online for host in world.hosts.values()),
        hosts=len(world.hosts),
    )


def _fleet_word(at_work: int, open_jobs: int, *, paused: bool) -> FleetState:
    if at_work:
        return "training"
    if paused:
        return "paused"
    return "waiting" if open_jobs else "idle"


def is_open(world: World) -> bool:
    """Whether the plan has a job that is not over."""
    return any(count and state not in FINAL for state, count in world.book.planned().items())


def ended(world: World) -> dict[str, int]:
    """Return how the plan's jobs have ended."""
    planned = world.book.planned()
    return {state.value: planned[state] for state in JobState if state in FINAL}


def power_w(gpus: Iterable[Gpu]) -> float | None:
    """Return what the GPUs draw together; none where none of them tells."""
    known = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    return sum(known) if known else None


def shown(text: str) -> str:
    """Return text as a state of Home Assistant may be: short, on one line."""
    return _short(" ".join("".join(c if c.isprintable() else " " for c in text).split()))


def _word(world: World, host: Host, held: list[Job], now: Now) -> str:
    word = condition(world, host, now)
    if held and world.presence(host, now) == "online":
        return "working"
    known = "idle" if word == "online" else word
    return known if known in _WORDS else "unknown"


def _problems(host: Host, record: HostRecord, now: Now) -> list[str]:
    lasting = (one for one in record.restraints() if one.code == "quarantine")
    found = [words(one, remedy=False) for one in lasting]
    found += [_FAULTS[word] for word in (host.presence(now),) if word in _FAULTS]
    if host.capability is not None:
        if host.capability.gpu_problem:
            found.append(f"GPU: {host.capability.gpu_problem}")
        if host.capability.lacks_data():
            found.append("it has no prepared data")
    return [shown(one) for one in found]


def _job(job: Job, progress: Progress | None, held: HeldJob | None) -> HomeJob:
    share = job_progress.share(progress, held)
    phase = held.phase if held else job.state.value
    return HomeJob(name=shown(job.spec.name), job_id=job.job_id, phase=phase, progress=share)


def _measures(host: Host) -> dict[str, Any]:
    beat, capability = host.heartbeat, host.capability
    if beat is None:
        return {}
    total = capability.ram_total_bytes if capability else 0
    sized = [gpu for gpu in beat.gpus if gpu.vram_total_bytes and gpu.vram_free_bytes is not None]
    vram_total = sum(gpu.vram_total_bytes or 0 for gpu in sized)
    vram_free = sum(gpu.vram_free_bytes or 0 for gpu in sized)
    uses = [gpu.use_percent for gpu in beat.gpus if gpu.use_percent is not None]
    drawn_w = power_w(beat.gpus)
    return {
        "cpu": None if beat.cpu_percent is None else min(100.0, round(beat.cpu_percent, 1)),
        "ram": _used(beat.ram_available_bytes, total),
        "ram_free_gib": round(beat.ram_available_bytes / GIB, 2),
        "gpu": round(sum(uses) / len(uses), 1) if uses else None,
        "vram": _used(vram_free, vram_total),
        "vram_free_gib": round(vram_free / GIB, 2) if sized else None,
        "power_w": None if drawn_w is None else round(drawn_w, 1),
    }


def _used(free: int, total: int) -> float | None:
    return round(100 * max(0, total - free) / total, 1) if total else None


def _moment(wall_s: float, now: Now) -> str:
    """Return a time, as exact as it can be: an estimate that wavers by a second is no news."""
    grain_s = 10.0 if wall_s - now.wall_s < SOON_S else 60.0
    return rfc3339(round(wall_s / grain_s) * grain_s)


def _minutes(until_s: float | None, now: Now) -> float | None:
    if until_s is None:
        return None
    left_s = max(0.0, until_s - now.wall_s)
    return round(left_s / 60, 1 if left_s < SOON_S else None)


def _named(names: Iterable[str]) -> str:
    found = list(names)
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return shown(", ".join(found[:NAMED])[: SHOWN_CHARS - len(more)] + more)


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 3] + "..."
