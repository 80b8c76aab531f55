"""What one seed stands for: hosts, jobs, weather, and a list of faults, all of it plain data.

A scenario is drawn from its seed, and can be made smaller part by part without changing the rest:
each part of a run draws from its own stream of random numbers.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from broker.protocol.messages import Needs
from coordinator.jobs.plan_entries import HostPolicy, JobSpec, Plan
from tests.harness.coordinator import with_id

from . import datasets, links, programs
from .network import Quirks, Weather

FAULTS_S: Final = 200.0  # for how long there are faults
ONE_GO: Final = "one_go"  # the model whose trainer cannot resume


@dataclass(frozen=True, slots=True)
class HostSpec:
    """One machine with an agent. `dies_with_agent`: whether trainers end with a killed agent."""

    name: str
    cuda: bool
    ram_gib: float
    slots: int
    dies_with_agent: bool
    sick: bool = False  # every trainer crashes on it
    quiet_hours: tuple[str, ...] = ()
    idle_only: bool = False
    on_busy: Literal["release", "finish"] = "release"
    lets_in: str = ""  # programs that are pinned, or signed


@dataclass(frozen=True, slots=True)
class JobPlan:
    """One job, and what its trainer will do. `size_bytes` is that of its bundle."""

    spec: JobSpec
    duration_s: float
    size_bytes: int
    behaviour: str = "ok"  # ok, fails, crashes, flaky (once), deaf (to SIGTERM), hangs
    same_bytes: bool = True  # whether another attempt gives the same artifact
    resumable: bool = True  # whether its trainer leaves checkpoints


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong, or that somebody does, at a time."""

    at_s: float
    kind: str
    who: tuple[str, ...] = ()
    for_s: float = 0.0
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that a run is made of."""

    seed: int
    hosts: tuple[HostSpec, ...]
    jobs: tuple[JobPlan, ...]
    weather: Weather
    quirks: Quirks
    faults: tuple[Fault, ...]
    batch_s: float = 0.002
    program: programs.Plan | None = None
    has_data: bool = False

    def plan(self) -> Plan:
        """Return the manifest."""
        policies = {
            host.name: HostPolicy(
                name=host.name, quiet_hours=host.quiet_hours, idle_only=host.idle_only,
                on_busy=host.on_busy,
            )
            for host in self.hosts
        }  # fmt: skip
        return Plan(tuple(job.spec for job in self.jobs), policies, prefer_cuda_grace_s=60.0)


def draw(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    rng = random.Random(f"scenario {seed}")
    hosts = tuple(_host(rng, number) for number in range(rng.choice((2, 2, 3, 4))))
    jobs = tuple(_job(rng, number, hosts) for number in range(rng.randint(3, 6)))
    names = [host.name for host in hosts]
    count = rng.choice((0, 2, 3, 5, 8))
    faults = [_fault(rng, names, jobs) for _ in range(count)]
    weather, quirks, batch_s = _weather(rng), _quirks(rng), rng.choice((0.001, 0.02, 0.3))
    # Of their own stream of random numbers, so that what came before is as it was.
    rng = random.Random(f"owners {seed}")
    hosts = tuple(_owned(rng, host) for host in hosts)
    faults += [
        _owners(rng, names, jobs) for _ in range(rng.choice((0, 0, 1, 2, 4)) if count else 0)
    ]
    rng = random.Random(f"resets {seed}")
    faults += [
        Fault(
            rng.uniform(0.0, FAULTS_S), "reset", (rng.choice([*names, "coordinator"]),),
            rng.choice((0.5, 30.0, 150.0, 300.0)) * (0.5 + rng.random()),
        )
        for _ in range(rng.choice((0, 1, 2, 4)) if count else 0)
    ]  # fmt: skip
    rng = random.Random(f"leases {seed}")
    jobs = tuple(_lost(rng, job) for job in jobs)
    rng = random.Random(f"quick {seed}")
    if rng.random() < 0.15:  # most of them, so that hosts are given some ahead
        jobs = tuple(replace(job, duration_s=rng.choice((0.5, 1.0, 1.5, 40.0))) for job in jobs)
    in_order = tuple(sorted(faults, key=lambda fault: fault.at_s))
    program, hosts, jobs = programs.draw(seed, hosts, jobs)
    has_data, jobs = datasets.draw(seed, jobs)
    jobs = links.draw(seed, jobs)
    return Scenario(seed, hosts, jobs, weather, quirks, in_order, batch_s, program, has_data)


def _host(rng: random.Random, number: int) -> HostSpec:
    return HostSpec(
        name=f"h{number}",
        cuda=rng.random() < (0.4 if number else 0.8),
        ram_gib=rng.choice((4.0, 16.0, 64.0)) if number else 64.0,
        slots=rng.choice((1, 1, 1, 2)),
        dies_with_agent=rng.random() < 0.7,
        sick=number > 0 and rng.random() < 0.05,
    )


def _owned(rng: random.Random, host: HostSpec) -> HostSpec:
    """Some hosts have quiet hours, at which the clock begins or that come soon; or idle only."""
    kind = rng.choices(("", "quiet", "idle"), (80, 12, 8))[0]
    return replace(
        host,
        quiet_hours=(rng.choice(("07:30-08:02", "08:02-08:06", "08:04-08:09")),)
        if kind == "quiet"
        else (),
        idle_only=kind == "idle",
        on_busy=rng.choice(("release", "release", "finish")),
    )


def extra_jobs() -> tuple[JobPlan, ...]:
    """Return the jobs that operators ask for beside the manifest."""
    return tuple(
        JobPlan(
            with_id(
                JobSpec(
                    job_id="", name=f"gbt-oracle-{number}", model="gbt", mode="oracle",
                    hyper={"n": number}, split_recipe="host", seed=0,
                    n_resamples=1000, priority=0, needs=Needs(),
                ),
                n=number,
            ),
            duration_s=20.0, size_bytes=500 + number,
        )
        for number in (900, 901)
    )  # fmt: skip


def _job(rng: random.Random, number: int, hosts: tuple[HostSpec, ...]) -> JobPlan:
    name = f"job{number:02d}"
    needs: dict[str, Any] = {}
    if rng.random() < 0.15:
        needs["require_cuda"] = True
    elif rng.random() < 0.15:
        needs["prefer_cuda"] = True
    if rng.random() < 0.2:
        needs["min_ram_gib"] = rng.choice((8.0, 32.0))
    allowed = (rng.choice(hosts).name,) if rng.random() < 0.08 else ()
    spec = JobSpec(
        job_id="", name=name, model="gbt", mode="oracle", hyper={"n": number}, split_recipe="host",
        seed=0, n_resamples=10, priority=rng.choice((0, 0, 50, 100)),
        needs=Needs(**needs), allowed_hosts=allowed,
        on_lost=rng.choice((None, None, "keep")), timeout_s=rng.choice((None, None, 150.0)),
        stall_timeout_s=250.0, retries=rng.choice((0, 2, 2)),
    )  # fmt: skip
    spec = with_id(spec, n=number)
    behaviour = rng.choices(
        ("ok", "fails", "crashes", "flaky", "deaf", "hangs"), (80, 3, 3, 5, 7, 2)
    )[0]
    seconds = (60.0, 90.0, 200.0) if behaviour == "deaf" else (0.3, 3.0, 10.0, 30.0, 90.0, 200.0)
    return JobPlan(
        spec,
        duration_s=rng.choice(seconds) * (0.5 + rng.random()),
        size_bytes=rng.choice((100, 1024, 3000, 7000)) + number,
        behaviour=behaviour,
        same_bytes=rng.random() < 0.6,
    )


def _lost(rng: random.Random, job: JobPlan) -> JobPlan:
    """Some trainers cannot resume; some jobs say that a lost trainer is stopped."""
    spec, resumable = job.spec, rng.random() >= 0.2
    if rng.random() < 0.3:
        spec = replace(spec, on_lost="stop")
    if not resumable:
        spec = replace(spec, model=ONE_GO)
    return replace(job, spec=spec, resumable=resumable)


def _weather(rng: random.Random) -> Weather:
    return Weather(
        loss=rng.choice((0.0, 0.0, 0.01, 0.05, 0.2)),
        repeat=rng.choice((0.0, 0.0, 0.02, 0.2)),
        reorder=rng.choice((0.0, 0.0, 0.02, 0.2)),
        corrupt_chunk=rng.choice((0.0, 0.0, 0.0, 0.05)),
        latency_s=rng.choice((0.001, 0.01, 0.1, 0.5)),
    )


def _quirks(rng: random.Random) -> Quirks:
    return Quirks(no_retained_on_wildcards=rng.random() < 0.2, retained_unasked=rng.random() < 0.2)


_KINDS: Final = (
    ("crash", 22),
    ("power", 10),
    ("leave", 6),
    ("broker", 8),
    ("partition", 12),
    ("half-open", 8),
    ("disk", 8),
    ("clock", 10),
    ("twin", 7),
    ("sleep", 6),
    ("rot", 5),
    ("gone", 7),
    ("operator", 25),
)


def _fault(rng: random.Random, hosts: list[str], jobs: tuple[JobPlan, ...]) -> Fault:
    kind = rng.choices([name for name, _ in _KINDS], [weight for _, weight in _KINDS])[0]
    at_s = rng.uniform(0.0, FAULTS_S)
    anyone = [*hosts, "coordinator", "coordinator"]
    one = (rng.choice(anyone),)
    a_while_s = rng.choice((0.5, 5.0, 30.0, 150.0)) * (0.5 + rng.random())
    match kind:
        case "crash" | "power":
            return Fault(at_s, kind, one, a_while_s, {"after": rng.choice((1, 2, 3, 5, 9, 20, 60))})
        case "leave" | "rot" | "twin" | "sleep" | "gone":
            return Fault(at_s, kind, (rng.choice(hosts),), a_while_s)
        case "broker":
            return Fault(at_s, kind, (), min(a_while_s, 60.0), {"forgets": rng.random() < 0.7})
        case "partition":
            who = tuple(sorted({rng.choice(anyone) for _ in range(rng.randint(1, 3))}))
            return Fault(at_s, kind, who, a_while_s)
        case "half-open":
            return Fault(at_s, kind, one, 0.0, {"broker_forgets": rng.random() < 0.6})
        case "disk":
            return Fault(at_s, kind, one, a_while_s, {"how": rng.choice(("full", "read-only"))})
        case "clock":
            return Fault(
                at_s, kind, one, 0.0, {"by_s": rng.choice((-86400.0, -60.0, 60.0, 86400.0))}
            )
    return _operator(rng, at_s, hosts, jobs, (
        "cancel", "cancel", "requeue", "requeue", "reload", "reload-less", "broken", "drain",
        "resume",
    ))  # fmt: skip


def _owners(rng: random.Random, hosts: list[str], jobs: tuple[JobPlan, ...]) -> Fault:
    """Somebody wants a machine back, or the whole fleet to wait; or a job beside the manifest."""
    at_s = rng.uniform(0.0, FAULTS_S)
    if rng.random() < 0.3:
        how = {"how": rng.choice(("snooze", "keys"))}
        return Fault(at_s, "owner", (rng.choice(hosts),), rng.choice((5.0, 60.0, 200.0)), how)
    return _operator(rng, at_s, hosts, jobs, (
        "drain-now", "drain-now", "snooze-now", "snooze-now", "snooze", "resume", "pause",
        "pause-off", "run", "run", "cancel-each",
    ))  # fmt: skip


def _operator(
    rng: random.Random, at_s: float, hosts: list[str], jobs: tuple[JobPlan, ...],
    verbs: tuple[str, ...],
) -> Fault:  # fmt: skip
    verb = rng.choice(verbs)
    what = {
        "verb": verb, "job": rng.choice(jobs).spec.name, "host": rng.choice(hosts),
        "held": rng.random() < 0.6,
    }  # fmt: skip
    return Fault(at_s, "operator", (), 0.0, what)
