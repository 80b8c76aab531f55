"""Metrics for Prometheus: read from the coordinator's state between two turns.

Names follow Prometheus' conventions: base units, `_total` on counters. Labels are bounded: states,
kinds, models (50), and hosts (1,000). Only a coordinator with metrics imports this module:
prometheus_client takes 15 ms and 2.4 MB.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import Histogram, disable_created_metrics
from prometheus_client.metrics_core import Metric as Family

from broker.clock import Now, seconds_of
from broker.protocol.messages import Gpu, Heartbeat, NoRoom
from coordinator.core import catalogue, filing
from coordinator.core.state import World
from coordinator.jobs.hosts import Host
from coordinator.jobs.jobs import Change
from coordinator.jobs.records import Record
from coordinator.jobs.states import Event, JobState

MAX_HOSTS: Final = 1000
MAX_MODELS: Final = 50  # with a histogram of their own; the rest is `other`
OTHER: Final = "other"
PRESENCES: Final = (
    "online", "starting", "twins", "left", "asleep", "cut-off", "silent", "unknown",
)  # fmt: skip
JOB_BOUNDS_S: Final = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 14_400.0,
                       28_800.0, 86_400.0)  # fmt: skip
COMMIT_BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_ENDS: Final = {Event.COMPLETED: "completed", Event.FAILED: "failed"}
_LOSSES: Final = (Event.LOST, Event.EXHAUSTED)


disable_created_metrics()  # type: ignore[no-untyped-call]


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
    started_s = seconds_of(job.started_at or (before.started_at if before else None))
    finished_s = seconds_of(job.finished_at)
    if started_s is None or finished_s is None:
        return None
    return max(0.0, finished_s - started_s)


@dataclass(frozen=True, slots=True)
class Inbox:
    """How full the coordinator's inbox is, and what it has dropped so far, by lane."""

    unread: Mapping[str, int]
    dropped: Mapping[str, int]
    connected: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """What the values are read from. `hosts` are those with metrics of their own."""

    world: World
    tally: Tally
    inbox: Inbox
    now: Now
    hosts: Sequence[Host]
    lack: NoRoom | None


Values = Iterable[tuple[tuple[str, ...], float | None]]  # of the labels, and the value


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, as docs/reference/metrics.md has it; a histogram is the tally's."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    values: Callable[[Reading], Values] | None = None

    @property
    def kind(self) -> str:
        """What Prometheus calls it."""
        if self.values is None:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


def _one(name: str, text: str, value: Callable[[Reading], float | None]) -> Metric:
    """Return a metric without labels; it has no sample while there is no value."""
    return Metric(name, text, (), lambda of: [((), value(of))])


def _by(name: str, text: str, label: str, counts: Callable[[Reading], Mapping[str, int]]) -> Metric:
    """Return a metric that counts by one label."""
    return Metric(name, text, (label,), lambda of: (((key,), n) for key, n in counts(of).items()))


def _host(name: str, text: str, value: Callable[[World, Host], float | None]) -> Metric:
    def values(of: Reading) -> Values:
        return (((host.name,), value(of.world, host)) for host in of.hosts)

    return Metric(name, text, ("host",), values)


def _beat(name: str, text: str, value: Callable[[Heartbeat], float | None]) -> Metric:
    """Return a metric of a host's heartbeat; an old figure would look like a new one."""

    def of_host(_: World, host: Host) -> float | None:
        return value(host.heartbeat) if host.heartbeat and host.online else None

    return _host(name, text, of_host)


def _gpu(name: str, text: str, value: Callable[[Gpu], float | None]) -> Metric:
    def values(of: Reading) -> Values:
        for host in of.hosts:
            for gpu in host.heartbeat.gpus if host.heartbeat and host.online else ():
                yield (host.name, str(gpu.index)), value(gpu)

    return Metric(name, text, ("host", "gpu"), values)


def _oldest_pending_s(of: Reading) -> float:
    now_s = of.now.mono_s
    return max(0.0, now_s - min(of.world.pending_since_s.values(), default=now_s))


def _hosts(of: Reading) -> Mapping[str, int]:
    found = Counter(host.presence(of.now) for host in of.world.hosts.values())
    return dict.fromkeys(PRESENCES, 0) | found


def _memory_bytes(_: World, host: Host) -> float | None:
    is_there = host.online and host.heartbeat and host.capability
    return host.capability.ram_total_bytes if is_there and host.capability else None


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _transfers(of: Reading) -> Mapping[str, int]:
    pushes = sum(one.is_push for one in of.world.uploads.values())
    up, down = len(of.world.uploads) - pushes, len(of.world.downloads)
    return {"up": up, "down": down, "push": pushes}


METRICS: Final = (
    Metric("fleet_build_info", "Always 1; the labels say what runs.",
           ("version", "python"),
           lambda of: [((of.world.settings.version, platform.python_version()), 1)]),
    _one("fleet_start_time_seconds", "When the coordinator was started, in Unix time.",
         lambda of: seconds_of(of.world.settings.started_at)),
    _one("fleet_broker_connected", "1 while the coordinator is connected.",
         lambda of: of.inbox.connected),
    _by("fleet_jobs", "Jobs by state.", "state",
        lambda of: dict.fromkeys(JobState, 0) | of.world.book.counts()),
    _one("fleet_jobs_oldest_pending_seconds",
         "For how long the job has been pending that waits longest; 0 when none does.",
         _oldest_pending_s),
    _by("fleet_job_events_total", "What moved jobs, by the words of `fleet events`.", "event",
        lambda of: {event: of.tally.events[event] for event in Event}),
    Metric("fleet_job_duration_seconds",
           "How long the trainer of a job's last attempt ran.", ("model", "outcome")),
    _one("fleet_attempts_lost_total",
         "Attempts that were lost with their host, or that it no longer had.",
         lambda of: sum(of.tally.events[event] for event in _LOSSES)),
    _by("fleet_hosts", "Hosts by presence.", "presence", _hosts),
    _host("fleet_host_online", "1 while the host is online.", lambda _, host: host.online),
    _host("fleet_host_barred", "1 while the host is drained or in quarantine.",
          lambda world, host: world.record(host.name).is_barred()),
    _host("fleet_host_last_seen_seconds", "When the host was last heard, in Unix time.",
          lambda _, host: host.heard.wall_s if host.heard else None),
    _beat("fleet_host_jobs", "Jobs that the host holds.", lambda beat: len(beat.jobs)),
    _beat("fleet_host_cpu_ratio", "Use of all cores, 0 to 1.",
          lambda beat: _ratio(beat.cpu_percent)),
    _beat("fleet_host_load1", "Load average of the last minute.", lambda beat: beat.load_1m),
    _host("fleet_host_memory_bytes", "RAM of the host.", _memory_bytes),
    _beat("fleet_host_memory_available_bytes", "RAM that is free for a job.",
          lambda beat: beat.ram_available_bytes),
    _gpu("fleet_gpu_use_ratio", "Use of the GPU, 0 to 1.", lambda gpu: _ratio(gpu.use_percent)),
    _gpu("fleet_gpu_memory_bytes", "VRAM of the GPU.", lambda gpu: gpu.vram_total_bytes),
    _gpu("fleet_gpu_memory_free_bytes", "VRAM that is free, others' use counted.",
         lambda gpu: gpu.vram_free_bytes),
    _gpu("fleet_gpu_power_watts", "Power that the GPU draws.", lambda gpu: gpu.power_w),
    _by("fleet_messages_dropped_total", "Messages that fitted nothing, by kind of topic.",
        "kind", lambda of: of.world.dropped),
    _by("fleet_messages_refused_total",
        "Reports that were void and commands that were turned away, by reason.", "reason",
        lambda of: of.world.refused),
    _by("fleet_inbox_messages", "Messages that wait for the coordinator.", "lane",
        lambda of: of.inbox.unread),
    _by("fleet_inbox_dropped_total",
        "Messages that found the inbox full, and will be sent again.", "lane",
        lambda of: of.inbox.dropped),
    Metric("fleet_ledger_commit_seconds",
           "How long a transaction of the ledger took, until it was durable."),
    _one("fleet_ledger_commit_failures_total", "Transactions that the disk refused.",
         lambda of: of.tally.commit_failures),
    _one("fleet_artifacts_received_total", "Artifacts that came whole.",
         lambda of: of.tally.artifacts),
    _one("fleet_artifact_received_bytes_total", "Bytes of these artifacts.",
         lambda of: of.tally.artifact_bytes),
    _one("fleet_artifacts_stored", "Artifacts in the store.", lambda of: len(of.world.stored)),
    _one("fleet_artifacts_stored_bytes", "Bytes of the artifacts in the store.",
         lambda of: sum(of.world.stored.values())),
    _one("fleet_store_waiting_jobs",
         "Finished jobs whose results wait for room on the disk of the store.",
         lambda of: of.lack.jobs if of.lack else 0),
    _one("fleet_store_needed_bytes", "What has yet to come of these results.",
         lambda of: of.lack.needed_bytes if of.lack else 0),
    _one("fleet_store_free_bytes",
         "What was free there when one was last refused; only while some wait.",
         lambda of: of.lack.free_bytes if of.lack else None),
    _one("fleet_store_reserve_bytes", "What results leave free there.",
         lambda of: of.lack.reserve_bytes if of.lack else None),
    _by("fleet_transfers",
        "Artifacts on their way: up from hosts, down, or a push from an operator.", "direction",
        _transfers),
    _one("fleet_programs", "Programs that the fleet has.",
         lambda of: sum(1 for _ in catalogue.programs(of.world))),
    _one("fleet_programs_bytes", "Bytes of their parcels.",
         lambda of: sum(one.size_bytes for one in catalogue.programs(of.world))),
    _one("fleet_datasets", "Datasets that the fleet has.",
         lambda of: sum(1 for _ in catalogue.datasets(of.world))),
    _one("fleet_datasets_bytes", "Bytes of their files; what two of them share counts twice.",
         lambda of: sum(one.size_bytes for one in catalogue.datasets(of.world))),
)  # fmt: skip


def read(world: World, tally: Tally, inbox: Inbox, now: Now) -> list[Family]:
    """Take the readings; what is returned does not change any more."""
    hosts = [world.hosts[name] for name in sorted(world.hosts)[:MAX_HOSTS]]
    reading = Reading(world, tally, inbox, now, hosts, filing.all_lack(world))
    families = {}
    for one in METRICS:
        family = families[one.name] = Family(one.name.removesuffix("_total"), one.help, one.kind)
        for labels, value in one.values(reading) if one.values else ():
            if value is not None:
                family.add_sample(one.name, dict(zip(one.labels, labels)), value)
    for histogram in (tally.durations, tally.commits):
        for measured in histogram.collect():
            families[measured.name].samples = list(measured.samples)
    return [*families.values()]
