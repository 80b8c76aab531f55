"""A copy of what the fleet publishes, as one client has heard it: values in, no IO.

It is filled by the coordinator's answers (`load_jobs`, `load_hosts`), since a broker may have
forgotten everything that is retained, and kept current by topics (`apply`). Everything that is
handed out is immutable, so that a snapshot may be read by any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from broker.clock import Now
from broker.errors import BadMessage
from broker.protocol.messages import (
    CAPABILITY,
    HEARTBEAT,
    JOB_ROW,
    PROGRESS,
    STATUS,
    SUMMARY,
    Capability,
    JobRow,
    Progress,
    Status,
    Summary,
    WaitsFor,
    decode,
)
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topic
from coordinator.client.seen import HostSeen, Snapshot
from coordinator.jobs import job_progress
from coordinator.jobs.curve import Curve, curves_of, extended, joined
from coordinator.jobs.hosts import TrainerSets

_WAITS_FOR: Final = TypeAdapter(WaitsFor)
MAX_HOSTS: Final = 20_000
LAST_WORDS_S: Final = 2.0  # as `hosts.LAST_WORDS_S`
MAX_JOBS: Final = 200_000
MAX_CURVES: Final = 1_000


@dataclass(slots=True)
class Mirror:
    """The copy. One thread changes it; others read snapshots."""

    version: int = 0
    hosts: dict[str, HostSeen] = field(default_factory=dict)
    jobs: dict[str, JobRow] = field(default_factory=dict)
    progress: dict[str, Progress] = field(default_factory=dict)
    curves: dict[str, Curve] = field(default_factory=dict)
    summary: Summary | None = None
    coordinator: Status | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    garbage: int = 0
    ends_s: dict[str, float] = field(default_factory=dict)  # when jobs end by this progress
    heard: set[str] = field(default_factory=set)
    is_listed: bool = False  # the list of jobs is whole: newer than what a broker has retained
    trainers: TrainerSets = field(default_factory=TrainerSets)

    def snapshot(self) -> Snapshot:
        """Return everything as it is now."""
        return Snapshot(
            self.version,
            dict(self.hosts),
            dict(self.jobs),
            dict(self.progress),
            dict(self.curves),
            self.summary,
            self.coordinator,
            self.status,
            dict(self.ends_s),
        )

    def apply(self, topic: Topic, payload: bytes, now: Now, *, retained: bool = False) -> bool:
        """Take one message; return whether anything changed. Garbage is counted and dropped."""
        try:
            changed = self._apply(topic, payload, now, retained=retained)
        except BadMessage:
            self.garbage += 1
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
            if job_id not in self.jobs:
                self._drop(job_id)
            self._forget_others(job_id)
        for job_id in [key for key in self.curves if key not in self.jobs]:
            del self.curves[job_id]
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
                heartbeat=_taken(HEARTBEAT, row, "heartbeat") or host.heartbeat,
            )
        self.version += 1

    def _capability(self, row: Mapping[str, Any]) -> Capability | None:
        found: Capability | None = _taken(CAPABILITY, row, "capability")
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
        """Take the answer to `status`."""
        self.status = data
        self._mark(data.get("unplaceable"))
        self._have_wait(data.get("waiting"))
        self.version += 1

    def _mark(self, said: Any) -> None:
        """Take which jobs no host can run; where there are more than are named, those keep theirs.

        Rows that are published do not say so: it changes with the hosts.
        """
        if said is None:
            return  # of a coordinator that is older than we are
        named = {one["job_id"] for one in said["jobs"]}
        is_whole = len(named) == said["count"]
        for job_id, row in self.jobs.items():
            is_so = job_id in named or (row.unplaceable and not is_whole)
            if row.unplaceable is not (is_so and row.state == "pending"):
                self.jobs[job_id] = row.model_copy(update={"unplaceable": not row.unplaceable})

    def _have_wait(self, said: Any) -> None:
        """Take what jobs wait for that does not come by itself; likewise."""
        if said is None:
            return  # of a coordinator that is older than we are
        named = {one["job_id"]: _taken(_WAITS_FOR, one, "waits_for") for one in said["jobs"]}
        is_whole = len(named) == said["count"]
        for job_id, row in self.jobs.items():
            known = None if is_whole else row.waits_for
            waits_for = named.get(job_id, known) if row.state == "pending" else None
            if row.waits_for != waits_for:
                self.jobs[job_id] = row.model_copy(update={"waits_for": waits_for})

    def _apply(self, topic: Topic, payload: bytes, now: Now, *, retained: bool) -> bool:
        match topic.kind:
            case Kind.STATUS | Kind.CAPABILITY | Kind.HEARTBEAT:
                return self._on_host(topic, payload, now, retained=retained)
            case Kind.PROGRESS:
                return self._on_progress(topic, payload, now)
            case Kind.JOB:
                return self._on_job(topic.job_id, payload, retained=retained)
            case Kind.SUMMARY:
                self.summary = decode(SUMMARY, payload) if payload else None
            case Kind.COORDINATOR_STATUS:
                self.coordinator = decode(STATUS, payload) if payload else None
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
            status = decode(STATUS, payload)
            known = host.status
            if status.state == "offline" and known and known.session != status.session:
                return False  # a late will of an old session
            if retained and status.reason == "lost" and host.heard_s is not None:
                return False  # a broker publishes the wills as it ends, and keeps them
            heard_s = now.mono_s if status.state == "online" else host.heard_s
            lost_s = None if status.reason != "lost" else host.lost_s or now.mono_s
            host = replace(host, status=status, heard_s=heard_s, lost_s=lost_s)
        elif topic.kind is Kind.CAPABILITY:
            host = replace(host, capability=self.trainers.share(decode(CAPABILITY, payload)))
        else:
            host = replace(host, heartbeat=decode(HEARTBEAT, payload), heard_s=now.mono_s)
        self.hosts[topic.host] = host
        return True

    def _on_job(self, job_id: str, payload: bytes, *, retained: bool) -> bool:
        if retained and self.is_listed:
            return False  # after a restore, the broker has rows that no ledger has
        if not payload:
            self._hear(job_id)
            self._drop(job_id)
            return self.jobs.pop(job_id, None) is not None
        row = decode(JOB_ROW, payload)
        known_row = self.jobs.get(job_id)
        if row.job_id != job_id or (known_row is None and len(self.jobs) >= MAX_JOBS):
            return False
        if known_row is not None and known_row.attempt > row.attempt:
            return False  # overtaken
        if not retained:
            self._hear(job_id)
        if row.state != "running":
            self._drop(job_id)
        if row.state == "pending" and known_row is not None:
            # Until the coordinator says another.
            marks = {"unplaceable": known_row.unplaceable, "waits_for": known_row.waits_for}
            row = row.model_copy(update=marks)
        self.jobs[job_id] = row
        self._forget_others(job_id)
        return row != known_row

    def _hear(self, job_id: str) -> None:
        if len(self.heard) < MAX_JOBS:
            self.heard.add(job_id)

    def _forget_others(self, job_id: str) -> None:
        """Forget the progress of another attempt than the job's: an earlier or made-up one."""
        known, row = self.progress.get(job_id), self.jobs.get(job_id)
        if known is not None and row is not None and not _may_be(row, known):
            self._drop(job_id)
        curve = self.curves.get(job_id)
        if curve is not None and row is not None and curve.attempt > row.attempt + 1:
            del self.curves[job_id]

    def _drop(self, job_id: str) -> bool:
        self.ends_s.pop(job_id, None)
        return self.progress.pop(job_id, None) is not None

    def _on_progress(self, topic: Topic, payload: bytes, now: Now) -> bool:
        job_id = topic.job_id
        row, known = self.jobs.get(job_id), self.progress.get(job_id)
        if row is not None and row.host not in {None, topic.host}:
            return False  # of a host that had the job before, or never had it
        if not payload:
            return self._drop(job_id)
        progress = decode(PROGRESS, payload)
        if known is None and not self._makes_room():
            return False
        # Overtaken, of a host that has yet to be told, or of an agent that died; or made up.
        if (row and not _may_be(row, progress)) or (known and known.attempt > progress.attempt):
            return False
        if progress == known:
            return False  # retained, it comes again
        self.progress[job_id] = progress
        left_s = job_progress.left_s(progress, 0.0)
        self.ends_s.pop(job_id, None)
        if left_s is not None:
            self.ends_s[job_id] = now.wall_s + left_s
        self._extend(job_id, progress)
        return True

    def _extend(self, job_id: str, progress: Progress) -> None:
        curve = extended(self.curves.get(job_id), progress)
        if curve is None:
            return
        self.curves.pop(job_id, None)
        self.curves[job_id] = curve  # the newest is the last
        while len(self.curves) > MAX_CURVES:
            self.curves.pop(self._made_up(self.curves) or next(iter(self.curves)))

    def _makes_room(self) -> bool:
        """Whether there is room for one more; what is of no known job makes it."""
        of = self.progress
        if len(of) >= MAX_JOBS and (made_up := self._made_up(of)) is not None:
            self._drop(made_up)
        return len(of) < MAX_JOBS

    def _made_up(self, of: Iterable[str]) -> str | None:
        """Return the oldest id that is no known job's: any host can tell of such."""
        return next((key for key in of if key not in self.jobs), None)


def _may_be(row: JobRow, progress: Progress) -> bool:
    """Whether it may be of the job's newest attempt, which its host may tell of before the row."""
    return row.attempt <= progress.attempt <= row.attempt + 1


def _rows(rows: Iterable[Mapping[str, Any]]) -> Iterable[JobRow]:
    for row in rows:
        try:
            yield JobRow.model_validate(row)
        except ValidationError:  # of a coordinator that is newer than we are
            continue


def _taken(adapter: Any, row: Mapping[str, Any], key: str) -> Any:
    try:
        return adapter.validate_python(row[key]) if row.get(key) is not None else None
    except ValidationError:
        return None
