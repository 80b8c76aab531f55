"""A copy of what the fleet publishes, as one client has heard it: values in, no IO.

It is filled by the coordinator's answers (`load_jobs`, `load_hosts`), since a broker may have
forgotten everything that is retained, and kept current by topics (`apply`). Everything that is
handed out is immutable, so that a snapshot may be read by any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from broker.clock import Now
from broker.errors import BadMessage
from broker.protocol import messages as m
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topic
from coordinator.jobs import job_progress
from coordinator.jobs.curve import Curve, curves_of, extended, joined
from coordinator.jobs.hosts import TrainerSets
from coordinator.jobs.reason_words import words

MAX_HOSTS: Final = 20_000
LAST_WORDS_S: Final = 2.0  # as `hosts.LAST_WORDS_S`
MAX_JOBS: Final = 200_000
MAX_CURVES: Final = 1_000


@dataclass(frozen=True, slots=True)
class HostSeen:
    """One host. `row` is the coordinator's own view of it, as `fleet workers --json` has it.

    `heard_s` is when it was last heard of, on the monotonic clock of this client; none: never.
    `lost_s` is when its broker has said that it is lost; none: it has not.
    """

    name: str
    status: m.Status | None = None
    capability: m.Capability | None = None
    heartbeat: m.Heartbeat | None = None
    heard_s: float | None = None
    lost_s: float | None = None
    row: Mapping[str, Any] = field(default_factory=dict)

    @property
    def online(self) -> bool:
        """Whether it is online, by its newest status, or else by the coordinator's word."""
        if self.status is not None:
            return self.status.state == "online"
        return self.row.get("status") == "online"

    @property
    def condition(self) -> str:
        """How it is in one word: the coordinator's, unless what is newer says otherwise."""
        word = str(self.row.get("condition", "unknown"))
        if not self.row or (self.row.get("status") == "online") is not self.online:
            word = "online" if self.online else "offline"
        if word in {"online", "refusing"}:
            return "refusing" if self.refuses else "online"
        return word

    @property
    def refuses(self) -> tuple[m.Why, ...]:
        """Why it takes no jobs now by its own word; empty when it does, or is away."""
        return self.heartbeat.refuses if self.heartbeat and self.online else ()


class Going(NamedTuple):
    """How far a job is that a host has.

    `progress` is what its trainer said last, `held` its host's heartbeat; none: nothing yet. By its
    trainer's word it ends at `ends_s` (seconds since the epoch); none where its host `is_away`.
    """

    progress: m.Progress | None = None
    held: m.HeldJob | None = None
    ends_s: float | None = None
    is_away: bool = False

    @property
    def share(self) -> float | None:
        """How much is done, 0 to 1, where that is known."""
        return job_progress.share(self.progress, self.held)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything at one moment. `version` grows with each change."""

    version: int
    hosts: Mapping[str, HostSeen]
    jobs: Mapping[str, m.JobRow]
    progress: Mapping[str, m.Progress]
    curves: Mapping[str, Curve]
    summary: m.Summary | None
    coordinator: m.Status | None
    status: Mapping[str, Any]
    ends_s: Mapping[str, float]

    def going(self) -> dict[str, Going]:
        """Return how far each job is that a host has."""
        beats = {
            (job.job_id, job.attempt): job
            for host in self.hosts.values()
            if host.heartbeat and host.online
            for job in host.heartbeat.jobs
        }
        away = {host.name for host in self.hosts.values() if not host.online}
        return {
            key: Going(
                self.progress.get(key), beats.get((key, row.attempt)),
                None if row.host in away else self.ends_s.get(key), row.host in away,
            )
            for key, row in self.jobs.items()
            if row.state in {"claimed", "running"}
        }  # fmt: skip

    @property
    def paused(self) -> str:
        """Why no new jobs are given out, as far as it is known; empty when they are."""
        told = self.status.get("paused")
        said = words(told) if told else ""
        if self.summary is None:
            return said
        return (said or "the fleet is paused") if self.summary.paused else ""


@dataclass(slots=True)
class Mirror:
    """The copy. One thread changes it; others read snapshots."""

    version: int = 0
    hosts: dict[str, HostSeen] = field(default_factory=dict)
    jobs: dict[str, m.JobRow] = field(default_factory=dict)
    progress: dict[str, m.Progress] = field(default_factory=dict)
    curves: dict[str, Curve] = field(default_factory=dict)
    summary: m.Summary | None = None
    coordinator: m.Status | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    ends_s: dict[str, float] = field(default_factory=dict)  # when jobs end by this progress
    heard: set[str] = field(default_factory=set)
    is_listed: bool = False  # the list of jobs is whole: newer than what a broker has retained
    trainers: TrainerSets = field(default_factory=TrainerSets)

    def snapshot(self) -> Snapshot:
        """Return everything as it is now."""
        found: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(Snapshot)}
        copied = {key: dict(one) for key, one in found.items() if isinstance(one, dict)}
        return Snapshot(**found | copied)

    def apply(self, topic: Topic, payload: bytes, now: Now, *, retained: bool = False) -> bool:
        """Take one message; return whether anything changed. Garbage is dropped."""
        try:
            changed = self._apply(topic, payload, now, retained=retained)
        except BadMessage:
            return False
        self.version += changed
        return changed

    def doubt(self, now: Now) -> None:
        """The broker has gone: what it has said of lost hosts just before says nothing of them."""
        for name, host in self.hosts.items():
            if host.lost_s is not None and now.mono_s - host.lost_s < LAST_WORDS_S:
                self.hosts[name] = replace(host, status=None, lost_s=None)
                self.version += 1

    def expect_jobs(self) -> None:
        """Begin to take a list of all jobs: what is heard until it is whole is newer than it."""
        self.heard.clear()
        self.is_listed = False

    def load_jobs(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take the coordinator's list of all jobs; what is not in it is gone."""
        self.is_listed = True
        newer = {key: self.jobs[key] for key in self.heard if key in self.jobs}
        listed = {}  # in the order of the list, which is that of claims
        for row in _rows(rows):
            if row.job_id in newer:
                listed[row.job_id] = newer.pop(row.job_id)
            elif row.job_id not in self.heard:
                listed[row.job_id] = row
        self.jobs = listed | newer
        for job_id in [*self.progress]:
            self._forget_others(job_id)
        self.curves = {
            key: curve
            for key, curve in self.curves.items()
            if (known := self.jobs.get(key)) is not None and curve.attempt <= known.attempt
        }
        self.version += 1

    def load_hosts(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Replace the hosts by the coordinator's list; brief rows keep the known capability."""
        before, self.hosts = self.hosts, {}
        for row in rows:
            name = str(row["host"])
            host = before.get(name) or HostSeen(name)
            self.hosts[name] = replace(
                host,
                row={key: row[key] for key in row if key not in {"capability", "heartbeat"}},
                capability=self._capability(row) or host.capability,
                heartbeat=_taken(m.HEARTBEAT, row, "heartbeat") or host.heartbeat,
            )
        self.version += 1

    def _capability(self, row: Mapping[str, Any]) -> m.Capability | None:
        found: m.Capability | None = _taken(m.CAPABILITY, row, "capability")
        return None if found is None else self.trainers.share(found)

    def begun(self) -> list[str]:
        """Return the jobs that may have told of losses before this client was there."""
        return [key for key, row in self.jobs.items() if row.state == "running"][:MAX_CURVES]

    def load_curves(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take what the coordinator has kept of jobs' curves."""
        for job_id, theirs in curves_of(rows).items():
            self.curves[job_id] = joined(theirs, self.curves.get(job_id))
        self.version += 1

    def load_status(self, data: Mapping[str, Any]) -> None:
        """Take the answer to `status`, with which jobs no host can run, and what others wait for.

        Rows that are published do not say so: it changes with the hosts. Where there are more such
        jobs than are named, the others keep what is known of them.
        """
        self.status = data
        none: dict[str, Any] = {"jobs": (), "count": -1}  # a coordinator of another version
        stuck, waits = data.get("unplaceable") or none, data.get("waiting") or none
        is_stuck = {one["job_id"]: True for one in stuck["jobs"]}
        kind = TypeAdapter(m.WaitsFor)
        waits_for = {one["job_id"]: _taken(kind, one, "waits_for") for one in waits["jobs"]}
        for job_id, row in self.jobs.items():
            marks: dict[str, Any] = {"unplaceable": False, "waits_for": None}
            if row.state == "pending":
                known_stuck = row.unplaceable and len(is_stuck) != stuck["count"]
                known_waits = row.waits_for if len(waits_for) != waits["count"] else None
                marks["unplaceable"] = is_stuck.get(job_id, known_stuck)
                marks["waits_for"] = waits_for.get(job_id, known_waits)
            if (row.unplaceable, row.waits_for) != (marks["unplaceable"], marks["waits_for"]):
                self.jobs[job_id] = row.model_copy(update=marks)
        self.version += 1

    def _apply(self, topic: Topic, payload: bytes, now: Now, *, retained: bool) -> bool:
        match topic.kind:
            case Kind.STATUS | Kind.CAPABILITY | Kind.HEARTBEAT:
                return self._on_host(topic, payload, now, retained=retained)
            case Kind.PROGRESS:
                return self._on_progress(topic, payload, now)
            case Kind.JOB:
                return self._on_job(topic.job_id, payload, retained=retained)
            case Kind.SUMMARY:
                self.summary = m.decode(m.SUMMARY, payload) if payload else None
            case Kind.COORDINATOR_STATUS:
                self.coordinator = m.decode(m.STATUS, payload) if payload else None
            case _:
                return False
        return True

    def _on_host(self, topic: Topic, payload: bytes, now: Now, *, retained: bool) -> bool:
        if not payload:
            return False  # a retained message was cleared; the coordinator's list tells who is gone
        host = self.hosts.get(topic.host)
        if host is None:
            if len(self.hosts) >= MAX_HOSTS:
                return False
            host = HostSeen(topic.host)
        if topic.kind is Kind.STATUS:
            status = m.decode(m.STATUS, payload)
            known = host.status
            if status.state == "offline" and known and known.session != status.session:
                return False  # a late will of an old session
            if retained and status.reason == "lost" and host.heard_s is not None:
                return False  # a broker publishes the wills as it ends, and keeps them
            heard_s = now.mono_s if status.state == "online" else host.heard_s
            lost_s = None if status.reason != "lost" else host.lost_s or now.mono_s
            host = replace(host, status=status, heard_s=heard_s, lost_s=lost_s)
        elif topic.kind is Kind.CAPABILITY:
            host = replace(host, capability=self.trainers.share(m.decode(m.CAPABILITY, payload)))
        else:
            host = replace(host, heartbeat=m.decode(m.HEARTBEAT, payload), heard_s=now.mono_s)
        self.hosts[topic.host] = host
        return True

    def _on_job(self, job_id: str, payload: bytes, *, retained: bool) -> bool:
        if retained and self.is_listed:
            return False  # after a restore, the broker has rows that no ledger has
        known = self.jobs.get(job_id)
        row = m.decode(m.JOB_ROW, payload) if payload else None
        if row is not None and (row.job_id != job_id or (known and known.attempt > row.attempt)):
            return False  # overtaken, or made up
        if not retained:
            self.heard.add(job_id)
        if row is None:
            self._drop(job_id)
            return self.jobs.pop(job_id, None) is not None
        if row.state != "running":
            self._drop(job_id)
        if row.state == "pending" and known is not None:
            # Until the coordinator says another.
            marks = {"unplaceable": known.unplaceable, "waits_for": known.waits_for}
            row = row.model_copy(update=marks)
        self.jobs[job_id] = row
        self._forget_others(job_id)
        return row != known

    def _forget_others(self, job_id: str) -> None:
        """Forget progress that is not of a known job's newest attempt."""
        known, row = self.progress.get(job_id), self.jobs.get(job_id)
        if known is not None and (row is None or row.attempt != known.attempt):
            self._drop(job_id)

    def _drop(self, job_id: str) -> bool:
        self.ends_s.pop(job_id, None)
        return self.progress.pop(job_id, None) is not None

    def _on_progress(self, topic: Topic, payload: bytes, now: Now) -> bool:
        """Take a trainer's word, of the attempt that a host has.

        Any host can tell of any job: once all jobs are known, nothing is taken of others.
        """
        job_id = topic.job_id
        row, known = self.jobs.get(job_id), self.progress.get(job_id)
        if row is None and (self.is_listed or len(self.progress) >= MAX_JOBS):
            return False
        if row is not None and row.host != topic.host:
            return False  # of a host that had the job before, or never had it
        if not payload:
            return self._drop(job_id)
        progress = m.decode(m.PROGRESS, payload)
        if row is not None and row.attempt != progress.attempt:
            return False
        if progress == known:
            return False  # retained, it comes again
        self.progress[job_id] = progress
        left_s = job_progress.left_s(progress, 0.0)
        self.ends_s.pop(job_id, None)
        if left_s is not None:
            self.ends_s[job_id] = now.wall_s + left_s
        curve = extended(self.curves.pop(job_id, None), progress)
        if curve is not None:
            self.curves[job_id] = curve  # the newest is the last
            if len(self.curves) > MAX_CURVES:
                del self.curves[next(iter(self.curves))]
        return True


def _rows(rows: Iterable[Mapping[str, Any]]) -> Iterable[m.JobRow]:
    for row in rows:
        try:
            yield m.JobRow.model_validate(row)
        except ValidationError:  # of a coordinator that is newer than we are
            continue


def _taken(adapter: Any, row: Mapping[str, Any], key: str) -> Any:
    try:
        return adapter.validate_python(row[key]) if row.get(key) is not None else None
    except ValidationError:
        return None
