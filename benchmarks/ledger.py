"""The ledger and its decisions: 100,000 pending jobs, 1,000 hosts of mixed capability.

A decision is what follows when a host has come free: the job that it is given. Beside it, on the
same plan in the same run, the way of the first version: every pending row is read from SQLite and
parsed, in claim order, until one fits. No broker takes part: messages are handed to the core as
they come off the wire, and what it decides is committed to a ledger with synchronous=FULL.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.common import machine, median, peak_mib, percentile, rss_mib, table
from broker.clock import Now
from broker.protocol import messages as m
from broker.protocol.link_events import Connected, Incoming
from broker.protocol.topics import Topics
from coordinator.core import assignment
from coordinator.core.core_settings import CoreSettings
from coordinator.core.effects import ManifestRead
from coordinator.core.plan_changes import known_trainers
from coordinator.core.reactor import Core
from coordinator.jobs.jobs import JobBook
from coordinator.jobs.plan_entries import JobSpec, Plan
from coordinator.jobs.states import Event
from coordinator.ledger.ledger import Ledger
from coordinator.manifest.builtin import builtin_trainers
from coordinator.manifest.manifest_file import load_manifest
from tests.harness.coordinator import with_id

GIB: Final = 2**30
MODELS: Final = ("gbt", "mlp", "cnn", "lstm")
ARTIFACT: Final = "5a" * 32
START: Final = Now(1000.0, 1.8e9)
# (cores, RAM in GiB, cards, VRAM in GiB): what people have.
MACHINES: Final = ((4, 4, 0, 0), (4, 8, 0, 0), (8, 16, 0, 0), (8, 32, 1, 8), (16, 64, 1, 24),
                   (32, 128, 2, 24))  # fmt: skip


def unfit(number: int) -> JobSpec:
    """Return a job that none of the hosts can take; there are 32 kinds of them."""
    kind = number % 32
    needs = m.Needs(require_cuda=True, min_vram_gib=40.0 + kind // 4, min_ram_gib=8.0)
    return _spec(number, MODELS[kind % 4], needs, priority=5)


def fit(number: int) -> JobSpec:
    """Return a job that some of the hosts can take; there are 12 kinds of them."""
    kind = number % 12
    needs = m.Needs(prefer_cuda=kind % 4 == 3, min_ram_gib=(None, 2.0, 4.0)[kind % 3])
    return _spec(number, MODELS[kind % 4], needs, priority=0)


def _spec(number: int, model: str, needs: m.Needs, priority: int) -> JobSpec:
    hyper = {"epochs": 10 + number % 50, "lr": 0.001 * (1 + number % 7)}
    made = JobSpec(
        job_id="", name=f"job-{number:06}", model=model, mode="realistic", hyper=hyper,
        split_recipe="host",
        seed=number, n_resamples=1000, priority=priority, needs=needs,
    )  # fmt: skip
    return with_id(made, **hyper)


class Fleet:
    """A core with a ledger on a file, and 1,000 hosts that speak to it."""

    def __init__(self, path: Path, hosts: int) -> None:
        """Nothing is pending yet, and the hosts are all there."""
        self.topics = Topics()
        self.ledger = Ledger(path)
        self.ids = 0
        self.mono_s = START.mono_s
        self.seq = dict.fromkeys(range(hosts), 0)
        self.core = Core(
            CoreSettings(instance="c", boot_id="b", prefer_cuda_grace_s=0.0), self.topics, {}, {},
            rng=random.Random(1), new_id=self._new_id, now=self.now,
        )  # fmt: skip
        for number in self.seq:
            self._join(number)

    @property
    def now(self) -> Now:
        """The time."""
        return Now(self.mono_s, START.wall_s + self.mono_s)

    def _new_id(self) -> str:
        self.ids += 1
        return f"{self.ids:032x}"

    def take(self, event: Any) -> None:
        """Have the core take an event, and commit what it decides."""
        self.mono_s += 0.001
        self.core.handle(event, self.now)
        self.commit()

    def commit(self) -> None:
        """Commit what the core has decided."""
        changes, _ = self.core.take()
        self.ledger.commit(changes)

    def _join(self, number: int) -> None:
        cores, ram_gib, cards, vram_gib = MACHINES[number % len(MACHINES)]
        name, ids = f"h{number:04}", {"session": f"s{number}", "instance": f"i{number}"}
        status = m.Status(state="online", reason="birth", boot_id="b", **ids)
        capability = m.Capability(
            os="linux", arch="x86_64", python="3.11", physical_cores=cores, data_id="d",
            ram_total_bytes=ram_gib * GIB, ram_available_bytes=ram_gib * GIB * 3 // 4,
            gpus=tuple(m.Gpu(index=one, vram_total_bytes=vram_gib * GIB) for one in range(cards)),
            trainers=builtin_trainers(),
            **ids,
        )  # fmt: skip
        self.take(Incoming(self.topics.status(name), m.encode(status)))
        self.take(Incoming(self.topics.capability(name), m.encode(capability)))
        self.take(self.heartbeat(number))

    def heartbeat(self, number: int) -> Incoming:
        """A heartbeat of a host that lists what it holds."""
        self.seq[number] += 1
        _, ram_gib, cards, vram_gib = MACHINES[number % len(MACHINES)]
        name = f"h{number:04}"
        held = tuple(
            m.HeldJob(job_id=job.job_id, attempt=job.attempt, phase="running", progress=0.5)
            for job in self.core.world.held_at(name)
        )
        beat = m.Heartbeat(
            session=f"s{number}", instance=f"i{number}", seq=self.seq[number], jobs=held,
            ram_available_bytes=ram_gib * GIB // 2, load_1m=1.0,
            gpus=tuple(
                m.Gpu(index=one, vram_total_bytes=vram_gib * GIB, vram_free_bytes=vram_gib * GIB)
                for one in range(cards)
            ),
        )  # fmt: skip
        return Incoming(self.topics.heartbeat(name), m.encode(beat))

    def finish(self, number: int) -> None:
        """The job of a host is completed: it is free."""
        world = self.core.world
        for job in world.held_at(f"h{number:04}"):
            world.move(job, Event.COMPLETED, self.now, "host", artifact_id=ARTIFACT)

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()


def scan(database: sqlite3.Connection, cores: int, ram_gib: int, vram_gib: int) -> str | None:
    """Decide as the first version did: read and parse every pending row until one fits."""
    rows = database.execute(
        "SELECT job_id, spec FROM jobs WHERE state = 'pending' ORDER BY priority DESC, created_at"
    )
    for job, text in rows:
        needs = json.loads(text)["needs"]
        if needs["require_cuda"] and not vram_gib:
            continue
        if (needs["min_vram_gib"] or 0) > vram_gib or (needs["min_ram_gib"] or 0) > ram_gib:
            continue
        if (needs["min_cores"] or 0) <= cores:
            return str(job)
    return None


def timed(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return how long it takes, in milliseconds."""
    begun_s = clock()
    work()
    return 1000 * (clock() - begun_s)


def busy(work: Callable[[], object]) -> float:
    """Return how long it keeps a core busy, in milliseconds."""
    return timed(work, time.thread_time)


def decisions(folder: Path, pending: int, hosts: int, rounds: int) -> dict[str, list[float]]:
    """Measure, in ms, what happens `rounds` times when a host has come free, with the plain way."""
    fleet = Fleet(folder / f"{pending}.db", hosts)
    specs = [unfit(number) for number in range(pending)]
    specs += [fit(1_000_000 + number) for number in range(hosts + 3 * rounds)]
    found: dict[str, list[float]] = {"decision": [], "scan": [], "idle": [], "change": []}
    fleet.take(ManifestRead(Plan(tuple(specs))))
    for number in range(hosts):
        fleet.take(fleet.heartbeat(number))  # what was assigned runs
    plain = sqlite3.connect(folder / f"{pending}.db")
    draw = random.Random(2)
    scans = max(5, min(rounds, 50_000 // pending))
    for number in range(rounds):
        host = draw.randrange(hosts)
        cores, ram_gib, _, vram_gib = MACHINES[host % len(MACHINES)]
        fleet.finish(host)
        if number < scans:
            found["scan"].append(busy(lambda: scan(plain, cores, ram_gib, vram_gib)))  # noqa: B023 - at once
        found["decision"].append(busy(lambda: assignment.settle(fleet.core.world, fleet.now)))
        fleet.commit()
        fleet.take(fleet.heartbeat(host))
        beat = fleet.heartbeat(draw.randrange(hosts))
        found["idle"].append(busy(lambda: fleet.take(beat)))  # noqa: B023 - at once
        host = draw.randrange(hosts)
        fleet.finish(host)
        free = fleet.heartbeat(host)
        found["change"].append(busy(lambda: fleet.take(free)))  # noqa: B023 - at once
    plain.close()
    fleet.close()
    return found


def commits(folder: Path, rounds: int) -> dict[int, list[float]]:
    """Measure, in ms, a transaction of 1, 10 and 100 events; the disk's part is in it."""
    ledger = Ledger(folder / "commits.db")
    book = JobBook()
    for number in range(100):
        book.add(unfit(number), START, "benchmark")
    ledger.commit(book.take_changes())
    found: dict[int, list[float]] = {1: [], 10: [], 100: []}
    for _ in range(rounds):
        for size, times in found.items():
            for job in list(book.all())[:size]:
                book.move(job, Event.CHANGED, START, "benchmark")
            changes = book.take_changes()
            times.append(timed(lambda: ledger.commit(changes)))  # noqa: B023 - at once
    ledger.close()
    return found


def manifest(jobs: int, changed: int, round_number: int) -> str:
    """Return the text of a manifest of which `changed` jobs differ from round to round."""
    parts = ["schema_version = 1\n[defaults]\nprefer_cuda_grace_s = 60\n"]
    for number in range(jobs):
        priority = 10 + round_number if number < changed else 5
        parts.append(
            f'[[jobs]]\nname = "job-{number:06}"\nmodel = "{MODELS[number % 4]}"\n'
            f'mode = "realistic"\nseed = {number}\npriority = {priority}\n'
            f"min_ram_gib = {2 + number % 3}.0\n[jobs.hyper]\nepochs = {10 + number % 50}\n"
            f"lr = {0.001 * (1 + number % 7):.3f}\n"
        )
    return "\n".join(parts)


def reloads(folder: Path, jobs: int, rounds: int) -> dict[str, list[float]]:
    """Measure, in ms, a reload from the file to the commit, by how many jobs have changed."""
    fleet, path = Fleet(folder / "reload.db", 10), folder / "plan.toml"

    def reload() -> None:
        plan = load_manifest(path, known_trainers(fleet.core.world))
        fleet.take(ManifestRead(plan))

    found: dict[str, list[float]] = {}

    def both(name: str, work: Callable[[], object]) -> None:
        found.setdefault(f"{name}: of a core", [])
        wall = timed(lambda: found[f"{name}: of a core"].append(busy(work)))
        found.setdefault(name, []).append(wall)

    path.write_text(manifest(jobs, 0, 0))
    both("the first, into an empty ledger", reload)
    for changed in (0, 10, jobs):
        for number in range(rounds):
            path.write_text(manifest(jobs, changed, number))
            both(f"{changed:,} changed", reload)
    fleet.close()
    return found


def fill(path: Path, pending: int) -> None:
    """Make a ledger with so many pending jobs."""
    ledger, book = Ledger(path), JobBook()
    for number in range(pending):
        book.add(unfit(number), START, "benchmark")
    ledger.commit(book.take_changes())
    ledger.close()


def start(path: Path) -> dict[str, float]:
    """Start a core from a ledger, in a process of its own; return seconds and MiB."""
    me = os.getpid()
    before_mib = rss_mib(me)
    begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
    ledger = Ledger(path)
    opened_s = time.perf_counter()
    jobs = ledger.load()
    loaded_s = time.perf_counter()
    core = Core(
        CoreSettings(instance="c", boot_id="b"), Topics(), jobs, {}, now=START,
        rng=random.Random(1), new_id=lambda: "0",
    )  # fmt: skip
    del jobs
    core.handle(Connected("session"), START)
    core.take()
    ended_s = time.perf_counter()
    ledger.close()
    return {
        "open and check, s": opened_s - begun_s,
        "load, s": loaded_s - opened_s,
        "core, first decision and birth, s": ended_s - loaded_s,
        "in all, s": ended_s - begun_s,
        "  of it CPU, s": time.process_time() - begun_cpu_s,
        "resident memory more than before, MiB": rss_mib(me) - before_mib,
        "at its peak, MiB": peak_mib(me) - before_mib,
    }


def starts(folder: Path, pending: int, rounds: int) -> dict[str, list[float]]:
    """Start from a ledger of so many jobs, each time in a process of its own."""
    path = folder / "start.db"
    fill(path, pending)
    found: dict[str, list[float]] = {}
    command = [sys.executable, "-m", "benchmarks.ledger", "--start", str(path)]
    for _ in range(rounds):
        done = subprocess.run(command, check=True, capture_output=True, timeout=300)
        for name, value in json.loads(done.stdout).items():
            found.setdefault(name, []).append(value)
    return found


def _ms(times: Sequence[float]) -> str:
    return f"{percentile(times, 50):.3g} / {percentile(times, 99):.3g}"


def show_decisions(sizes: Sequence[int], hosts: int, rounds: int) -> None:
    """Print the table of decisions."""
    rows = []
    for pending in sizes:
        with tempfile.TemporaryDirectory() as folder:
            found = decisions(Path(folder), pending, hosts, rounds)
        ratio = percentile(found["scan"], 50) / percentile(found["decision"], 50)
        times = [_ms(found[name]) for name in ("decision", "scan", "idle", "change")]
        rows.append([f"{pending:,}", *times[:2], f"{ratio:,.0f}", *times[2:]])
    print(f"ms of a core, p50 / p99 of {rounds}; {hosts:,} hosts\n")
    header = ("pending that do not fit", "decision", "scan and parse", "ratio of p50",
              "heartbeat, nothing new", "heartbeat that starts a job")  # fmt: skip
    print(table(header, rows))


def show(title: str, found: Mapping[Any, list[float]]) -> None:
    """Print a table of medians with their ranges."""
    print(f"\n{title}\n")
    print(table(("", "median (range)"), [(name, median(times)) for name, times in found.items()]))


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300, help="decisions at each size")
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="up to 10,000 pending jobs")
    parser.add_argument("--start", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.start is not None:
        print(json.dumps(start(arguments.start)))
        return 0
    sizes = (100, 1000, 10_000) if arguments.quick else (100, 1000, 10_000, 100_000)
    print(machine("pydantic"), f"SQLite {sqlite3.sqlite_version}", sep=", ")
    show_decisions(sizes, arguments.hosts, arguments.rounds)
    with tempfile.TemporaryDirectory() as folder:
        found = commits(Path(folder), 50)
        each = {f"{size} at once": [ms / size for ms in times] for size, times in found.items()}
        show("one commit at synchronous=FULL, ms", {f"{n} events": t for n, t in found.items()})
        show("of it for each event, ms", each)
        show("reload of 10,000 jobs, ms", reloads(Path(folder), 10_000, 5))
        show(f"start from {sizes[-1]:,} pending jobs", starts(Path(folder), sizes[-1], 5))
    return 0


if __name__ == "__main__":
    sys.exit(main())
