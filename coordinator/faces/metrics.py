"""Metrics for Prometheus: read from the coordinator's state between two turns.

Names follow Prometheus' conventions: base units, `_total` on counters. Labels are bounded: states,
kinds, models (50), and hosts (1,000). Only a coordinator with metrics imports this module:
prometheus_client takes 15 ms and 2.4 MB.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from prometheus_client import Histogram, disable_created_metrics
from prometheus_client.metrics_core import Metric as Family

from broker.clock import Now
from broker.protocol.messages import Gpu
from coordinator.core import filing
from coordinator.core.state import World
from coordinator.jobs.hosts import Host
from coordinator.jobs.jobs import Change
from coordinator.jobs.records import Record
from coordinator.jobs.states import Event, JobState

MAX_HOSTS: Final = 1000
MAX_MODELS: Final = 50  # with a histogram of their own; the rest is `other`
OTHER: Final = "other"
PRESENCES: Final = (
    "online", "starting", "restarted", "rebooted", "twins", "left", "asleep", "cut-off",
    "silent", "unknown",
)  # fmt: skip
JOB_BOUNDS_S: Final = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 14_400.0,
                       28_800.0, 86_400.0)  # fmt: skip
COMMIT_BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_ENDS: Final = {Event.COMPLETED: "completed", Event.FAILED: "failed"}
_LOSSES: Final = (Event.LOST, Event.EXHAUSTED)

Labels = dict[str, str]
Sample = tuple[str, Labels, float]

disable_created_metrics()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, as docs/reference/metrics.md has it."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


METRICS: Final = (
    Metric("fleet_build_info", "gauge", "Always 1; the labels say what runs.",
           ("version", "python")),
    Metric("fleet_start_time_seconds", "gauge", "When the coordinator was started, in Unix time."),
    Metric("fleet_broker_connected", "gauge", "1 while the coordinator is connected."),
    Metric("fleet_jobs", "gauge", "Jobs by state.", ("state",)),
    Metric("fleet_jobs_oldest_pending_seconds", "gauge",
           "For how long the job has been pending that waits longest; 0 when none does."),
    Metric("fleet_job_events_total", "counter", "What moved jobs, by the words of `fleet events`.",
           ("event",)),
    Metric("fleet_job_duration_seconds", "histogram",
           "How long the trainer of a job's last attempt ran.", ("model", "outcome")),
    Metric("fleet_attempts_lost_total", "counter",
           "Attempts that were lost with their host, or that it no longer had."),
    Metric("fleet_hosts", "gauge", "Hosts by presence.", ("presence",)),
    Metric("fleet_host_online", "gauge", "1 while the host is online.", ("host",)),
    Metric("fleet_host_barred", "gauge", "1 while the host is drained or in quarantine.",
           ("host",)),
    Metric("fleet_host_last_seen_seconds", "gauge", "When the host was last heard, in Unix time.",
           ("host",)),
    Metric("fleet_host_jobs", "gauge", "Jobs that the host holds.", ("host",)),
    Metric("fleet_host_cpu_ratio", "gauge", "Use of all cores, 0 to 1.", ("host",)),
    Metric("fleet_host_load1", "gauge", "Load average of the last minute.", ("host",)),
    Metric("fleet_host_memory_bytes", "gauge", "RAM of the host.", ("host",)),
    Metric("fleet_host_memory_available_bytes", "gauge", "RAM that is free for a job.", ("host",)),
    Metric("fleet_gpu_use_ratio", "gauge", "Use of the GPU, 0 to 1.", ("host", "gpu")),
    Metric("fleet_gpu_memory_bytes", "gauge", "VRAM of the GPU.", ("host", "gpu")),
    Metric("fleet_gpu_memory_free_bytes", "gauge", "VRAM that is free, others' use counted.",
           ("host", "gpu")),
    Metric("fleet_gpu_power_watts", "gauge", "Power that the GPU draws.", ("host", "gpu")),
    Metric("fleet_messages_dropped_total", "counter",
           "Messages that fitted nothing, by kind of topic.", ("kind",)),
    Metric("fleet_messages_refused_total", "counter",
           "Reports that were void and commands that were turned away, by reason.", ("reason",)),
    Metric("fleet_inbox_messages", "gauge", "Messages that wait for the coordinator.", ("lane",)),
    Metric("fleet_inbox_dropped_total", "counter",
           "Messages that found the inbox full, and will be sent again.", ("lane",)),
    Metric("fleet_ledger_commit_seconds", "histogram",
           "How long a transaction of the ledger took, until it was durable."),
    Metric("fleet_ledger_commit_failures_total", "counter",
           "Transactions that the disk refused."),
    Metric("fleet_artifacts_received_total", "counter", "Artifacts that came whole."),
    Metric("fleet_artifact_received_bytes_total", "counter", "Bytes of these artifacts."),
    Metric("fleet_artifacts_stored", "gauge", "Artifacts in the store."),
    Metric("fleet_artifacts_stored_bytes", "gauge", "Bytes of the artifacts in the store."),
    Metric("fleet_store_waiting_jobs", "gauge",
           "Finished jobs whose results wait for room on the disk of the store."),
    Metric("fleet_store_needed_bytes", "gauge", "What has yet to come of these results."),
    Metric("fleet_store_free_bytes", "gauge",
           "What was free there when one was last refused; only while some wait."),
    Metric("fleet_store_reserve_bytes", "gauge", "What results leave free there."),
    Metric("fleet_transfers", "gauge", "Artifacts on their way, up to the coordinator or down.",
           ("direction",)),
)  # fmt: skip


class Tally:
    """What is counted since the coordinator started, and kept nowhere else."""

    def __init__(self) -> None:
        self.events: Counter[Event] = Counter()
        self.durations = Histogram(
            "fleet_job_duration_seconds", "", ("model", "outcome"), buckets=JOB_BOUNDS_S,
            registry=None,
        )  # fmt: skip
        self.commits = Histogram(
            "fleet_ledger_commit_seconds", "", buckets=COMMIT_BOUNDS_S, registry=None
        )
        self.commit_failures = 0
        self.artifacts = 0
        self.artifact_bytes = 0
        self._models: set[str] = set()

    def on_commit(self, changes: Iterable[Change | Record], seconds: float) -> None:
        """Count a transaction that was committed and took so long."""
        self.commits.observe(seconds)
        for change in changes:
            if isinstance(change, Change):
                self.events[change.event] += 1
                if change.event in _ENDS and (ran_s := _ran_s(change)) is not None:
                    model = self._label(change.after.spec.model)
                    self.durations.labels(model, _ENDS[change.event]).observe(ran_s)

    def on_stored(self, size_bytes: int) -> None:
        """Count an artifact that came whole."""
        self.artifacts += 1
        self.artifact_bytes += size_bytes

    def _label(self, model: str) -> str:
        if model not in self._models and len(self._models) >= MAX_MODELS:
            return OTHER
        self._models.add(model)
        return model


def _ran_s(change: Change) -> float | None:
    """Return how long the ended attempt ran: as its agent measured it, else by our clock."""
    job, before = change.after, change.before
    if job.ran_s is not None:
        return job.ran_s
    started_s = _seconds(job.started_at or (before.started_at if before else None))
    finished_s = _seconds(job.finished_at)
    if started_s is None or finished_s is None:
        return None
    return max(0.0, finished_s - started_s)


@dataclass(frozen=True, slots=True)
class Inbox:
    """How full the coordinator's inbox is, and what it has dropped so far, by lane."""

    unread: Mapping[str, int]
    dropped: Mapping[str, int]
    connected: bool


def read(world: World, tally: Tally, inbox: Inbox, now: Now) -> list[Family]:
    """Take the readings; what is returned does not change any more."""
    families = {
        one.name: Family(one.name.removesuffix("_total"), one.help, one.kind) for one in METRICS
    }
    for name, labels, value in (
        *_of_coordinator(world, inbox),
        *_of_jobs(world, tally, now),
        *_of_hosts(world, now),
        *_of_messages(world, inbox),
        *_of_storage(world, tally),
    ):
        families[name].add_sample(name, labels, value)
    for histogram in (tally.durations, tally.commits):
        for family in histogram.collect():
            families[family.name].samples = list(family.samples)
    return [*families.values()]


def _of_coordinator(world: World, inbox: Inbox) -> Iterator[Sample]:
    settings = world.settings
    version = {"version": settings.version, "python": platform.python_version()}
    yield "fleet_build_info", version, 1
    if (started_s := _seconds(settings.started_at)) is not None:
        yield "fleet_start_time_seconds", {}, started_s
    yield "fleet_broker_connected", {}, int(inbox.connected)


def _of_jobs(world: World, tally: Tally, now: Now) -> Iterator[Sample]:
    counts = world.book.counts()
    for state in JobState:
        yield "fleet_jobs", {"state": state.value}, counts.get(state.value, 0)
    since_s = min(world.pending_since_s.values(), default=now.mono_s)
    yield "fleet_jobs_oldest_pending_seconds", {}, max(0.0, now.mono_s - since_s)
    for event in Event:
        yield "fleet_job_events_total", {"event": event.value}, tally.events[event]
    yield "fleet_attempts_lost_total", {}, sum(tally.events[event] for event in _LOSSES)


def _of_hosts(world: World, now: Now) -> Iterator[Sample]:
    presences = Counter(host.presence(now) for host in world.hosts.values())
    for presence in sorted({*PRESENCES, *presences}):
        yield "fleet_hosts", {"presence": presence}, presences[presence]
    for name in sorted(world.hosts)[:MAX_HOSTS]:
        yield from _of_host(world, world.hosts[name])


def _of_host(world: World, host: Host) -> Iterator[Sample]:
    label = {"host": host.name}
    yield "fleet_host_online", label, int(host.online)
    yield "fleet_host_barred", label, int(bool(world.record(host.name).barred()))
    if (seen_s := _seconds(host.last_seen_at)) is not None:
        yield "fleet_host_last_seen_seconds", label, seen_s
    heartbeat = host.heartbeat
    if heartbeat is None or not host.online:
        return  # old figures would look like new ones
    yield "fleet_host_jobs", label, len(heartbeat.jobs)
    if heartbeat.cpu_percent is not None:
        yield "fleet_host_cpu_ratio", label, heartbeat.cpu_percent / 100
    if heartbeat.load_1m is not None:
        yield "fleet_host_load1", label, heartbeat.load_1m
    if host.capability is not None:
        yield "fleet_host_memory_bytes", label, host.capability.ram_total_bytes
    yield "fleet_host_memory_available_bytes", label, heartbeat.ram_available_bytes
    for gpu in heartbeat.gpus:
        yield from _of_gpu({**label, "gpu": str(gpu.index)}, gpu)


def _of_gpu(label: Labels, gpu: Gpu) -> Iterator[Sample]:
    known = {
        "fleet_gpu_use_ratio": None if gpu.use_percent is None else gpu.use_percent / 100,
        "fleet_gpu_memory_bytes": gpu.vram_total_bytes,
        "fleet_gpu_memory_free_bytes": gpu.vram_free_bytes,
        "fleet_gpu_power_watts": gpu.power_w,
    }
    for name, value in known.items():
        if value is not None:
            yield name, label, value


def _of_messages(world: World, inbox: Inbox) -> Iterator[Sample]:
    yield from _each("fleet_messages_dropped_total", "kind", world.dropped)
    yield from _each("fleet_messages_refused_total", "reason", world.refused)
    yield from _each("fleet_inbox_messages", "lane", inbox.unread)
    yield from _each("fleet_inbox_dropped_total", "lane", inbox.dropped)


def _of_storage(world: World, tally: Tally) -> Iterator[Sample]:
    yield "fleet_ledger_commit_failures_total", {}, tally.commit_failures
    yield "fleet_artifacts_received_total", {}, tally.artifacts
    yield "fleet_artifact_received_bytes_total", {}, tally.artifact_bytes
    yield "fleet_artifacts_stored", {}, len(world.stored)
    yield "fleet_artifacts_stored_bytes", {}, sum(world.stored.values())
    lack = filing.all_lack(world)
    yield "fleet_store_waiting_jobs", {}, 0 if lack is None else lack.jobs
    yield "fleet_store_needed_bytes", {}, 0 if lack is None else lack.needed_bytes
    if lack is not None:
        yield "fleet_store_free_bytes", {}, lack.free_bytes
        yield "fleet_store_reserve_bytes", {}, lack.reserve_bytes
    yield "fleet_transfers", {"direction": "up"}, len(world.uploads)
    yield "fleet_transfers", {"direction": "down"}, len(world.downloads)


def _each(name: str, label: str, counts: Mapping[str, int]) -> Iterator[Sample]:
    for key in sorted(counts):
        yield name, {label: key}, counts[key]


def _seconds(at: str | None) -> float | None:
    try:
        return datetime.fromisoformat(at or "").timestamp()
    except ValueError:
        return None


def table(metrics: Iterable[Metric] = METRICS) -> str:
    """Return the table of docs/reference/metrics.md."""
    head = "| metric | kind | labels | what it says |\n| --- | --- | --- | --- |\n"
    return head + "".join(
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} |"
        f" {one.help} |\n"
        for one in metrics
    )
