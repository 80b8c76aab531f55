"""What the coordinator's core holds in memory, and the few ways in which its handlers act on it.

The handlers in the other modules are functions over a `World`. They move jobs by `World.move` and
send messages by `World.publish`, nothing else.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from broker.clock import Now, Randomness, Timers
from broker.protocol import messages as m
from broker.protocol.link_events import Outgoing
from broker.protocol.reasons import Reason
from broker.protocol.topics import Topics
from coordinator.core import entries
from coordinator.core.core_settings import CoreSettings
from coordinator.core.effects import Effect, Warn
from coordinator.jobs.causes import NONE, Cause
from coordinator.jobs.hosts import Holdback, Host, TrainerSets
from coordinator.jobs.jobs import Job, JobBook
from coordinator.jobs.plan_entries import HostPolicy, Plan
from coordinator.jobs.records import (
    FleetRecord,
    HostForgotten,
    HostRecord,
    PushedRecord,
    Record,
    RequestKey,
    Revocation,
)
from coordinator.jobs.states import FINAL, Event, JobState
from coordinator.scheduler.queue import Queue

NO_PLAN: Final = Plan(())
MAX_HOSTS: Final = 20_000
MAX_ANSWERS: Final = 4096
# What a host is asked and does not answer is asked again, a claim until it is given up, all else so
# many times; then its next heartbeat brings it up again.
RESEND_BASE_S: Final = 2.0
RESEND_CAP_S: Final = 15.0
RESENDS: Final = 6
ROWS_AT_ONCE: Final = 250
ROWS_EVERY_S: Final = 0.25


@dataclass(slots=True)
class World:
    """Everything the core decides on."""

    settings: CoreSettings
    topics: Topics
    rng: Randomness
    new_id: Callable[[], str]
    book: JobBook
    stored: dict[str, int]
    hosts: dict[str, Host] = field(default_factory=dict)
    trainers: TrainerSets = field(default_factory=TrainerSets)
    edited: dict[str, str] = field(default_factory=dict)  # model: version a host changed to last
    timers: Timers[tuple[str, ...]] = field(default_factory=Timers)
    claims: dict[str, entries.Claim] = field(default_factory=dict)
    # By job, by host.
    holdbacks: dict[str, dict[str, Holdback]] = field(default_factory=dict)
    stops: dict[tuple[str, str, int], entries.Stop] = field(default_factory=dict)
    pending_since_s: dict[str, float] = field(default_factory=dict)
    records: dict[str, HostRecord] = field(default_factory=dict)
    fleet: FleetRecord = field(default_factory=FleetRecord)
    releases: dict[tuple[str, str, int], int] = field(default_factory=dict)
    record_changes: list[Record] = field(default_factory=list)
    revoked: dict[str, Revocation] = field(default_factory=dict)
    evidence: dict[str, entries.Evidence] = field(default_factory=dict)
    expected: dict[str, entries.Expected] = field(default_factory=dict)
    given: dict[str, tuple[int, Now]] = field(default_factory=dict)  # newest attempts, and when
    awaits: dict[str, str] = field(default_factory=dict)  # the artifact that a job awaits
    # Artifacts that the ledger keeps, and since when the disk is asked to make a file of each.
    unfiled: dict[str, float | None] = field(default_factory=dict)
    filed: dict[str, None] = field(default_factory=dict)  # the ledger may let go of them
    uploads: dict[str, entries.Upload] = field(default_factory=dict)
    no_room: dict[str, m.NoRoom] = field(default_factory=dict)  # by job, the newest last
    parts_opened: int = 0
    downloads: dict[str, entries.Download] = field(default_factory=dict)
    pushed: dict[str, PushedRecord] = field(default_factory=dict)  # by title, newest last
    pushes: dict[str, str] = field(default_factory=dict)  # the blob that comes, by client
    # What has begun to come, by title, and until when that is kept.
    coming: dict[str, tuple[m.ProgramOffer | m.DataOffer, float]] = field(default_factory=dict)
    crl: str = ""  # the CA's revocation list in PEM, where the coordinator has the CA
    answers: OrderedDict[RequestKey, entries.Answer] = field(default_factory=OrderedDict)
    dropped: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    turned_away_s: deque[float] = field(default_factory=deque)
    broker_refused: dict[str, int] | None = None
    home_commands_s: deque[float] = field(default_factory=deque)
    session: str = ""
    connected: bool = False
    has_rival: bool = False  # another coordinator was seen here, which tells hosts to stop jobs
    # How the manifest's file has become another since it was read, and what is wrong with it as it
    # is now, where the plan is older.
    manifest_changed: Cause = field(default_factory=dict)
    manifest_fault: Cause = field(default_factory=dict)
    unsaid: dict[str, None] = field(default_factory=dict)  # jobs whose rows are to be published
    rows: dict[str, None] = field(default_factory=dict)  # of these jobs, in this turn
    out: list[Effect] = field(default_factory=list)
    behind: dict[str, None] = field(default_factory=dict)  # jobs that wait for others
    lent: dict[str, frozenset[str]] = field(default_factory=dict)  # artifacts given to held jobs
    queue: Queue = field(default_factory=Queue)
    changed_hosts: dict[str, None] = field(default_factory=dict)  # since the queue saw them
    unsettled: bool = True

    @property
    def plan(self) -> Plan:
        """The plan in force, without its jobs: the book has them."""
        return self.fleet.plan or NO_PLAN

    def publish(self, topic: str, message: m.Wire, qos: int = 1, *, retain: bool = False) -> None:
        """Send a message after the ledger has been committed."""
        self.out.append(Outgoing(topic, m.encode(message), qos, retain))

    def do(self, effect: Effect) -> None:
        """Ask the shell for something, after the ledger has been committed."""
        self.out.append(effect)

    def move(
        self, job: Job, event: Event, now: Now, who: str, why: Cause = NONE, **changes: Any
    ) -> Job:
        """Move a job, keep its timers in step, and tell whoever watches it."""
        after = self.book.move(job, event, now, who, why, **changes)
        self._note_hosts(job, after)
        if not after.is_held:
            self.claims.pop(job.job_id, None)
            self.lent.pop(job.job_id, None)
            self.no_room.pop(job.job_id, None)
            self.timers.cancel(("assign", job.job_id))
            self.timers.cancel(("lease", job.job_id))
        if after.state is JobState.PENDING and job.state is not JobState.PENDING:
            self.pending_since_s[job.job_id] = now.mono_s
        elif after.state is not JobState.PENDING:
            self.pending_since_s.pop(job.job_id, None)
            self.timers.cancel(("retry", job.job_id))
        if event is Event.ASSIGNED:
            self._expect_nothing(job.job_id)
            self.given[job.job_id] = (after.attempt, now)
        if after.state in FINAL:
            # A job that was lost too often is failed, but its result may still be on its way.
            if event is not Event.EXHAUSTED:
                self._expect_nothing(job.job_id)
                self.given.pop(job.job_id, None)
            self.holdbacks.pop(job.job_id, None)
        if after.state is not JobState.RUNNING or event is Event.CHANGED:
            self.unsettled = True  # there may be a slot, or a job, that there was not before
        self.announce(after, now)
        return after

    def look_at(self, host: str) -> None:
        """Something about a host has changed: it may take a job that it did not take before."""
        self.changed_hosts[host] = None
        self.unsettled = True

    def expect(self, artifact_id: str, expected: entries.Expected) -> None:
        """Await an artifact; a job awaits one at a time."""
        self._expect_nothing(expected.job_id)
        self.unexpect(artifact_id)
        self.expected[artifact_id] = expected
        self.awaits[expected.job_id] = artifact_id
        self.changed_hosts[expected.host] = None  # its slot is free

    def unexpect(self, artifact_id: str) -> None:
        """Await an artifact no more."""
        expected = self.expected.pop(artifact_id, None)
        if expected is not None:
            del self.awaits[expected.job_id]
            self.changed_hosts[expected.host] = None

    def _expect_nothing(self, job_id: str) -> None:
        if job_id in self.awaits:
            self.unexpect(self.awaits[job_id])

    def _note_hosts(self, before: Job, after: Job) -> None:
        """Where a job was, and where it is, there may be a slot more or less."""
        for name in (before.host, after.host):
            if name is not None:
                self.changed_hosts[name] = None
        is_over = after.state in FINAL or before.attempt != after.attempt
        if (is_over or before.host != after.host) and before.host in self.hosts:
            self.hosts[before.host].progress.pop(before.job_id, None)
            self.hosts[before.host].told_s.pop(before.job_id, None)

    def announce(self, job: Job, now: Now) -> None:
        """Publish the row of a job that is over with this turn; others soon, many together."""
        if job.state in FINAL and len(self.rows) < ROWS_AT_ONCE:
            self.unsaid.pop(job.job_id, None)
            self.rows[job.job_id] = None
        elif job.job_id not in self.rows:
            self.unsaid[job.job_id] = None
            if ("rows",) not in self.timers:
                self.timers.set(("rows",), now.mono_s + ROWS_EVERY_S)
        if ("summary",) not in self.timers:
            self.timers.set(("summary",), now.mono_s + 0.2)

    def take_out(self) -> list[Effect]:
        """Return the effects; the jobs' rows are the last messages."""
        rows, self.rows = self.rows, {}
        for job_id in rows:
            self.publish(self.topics.job(job_id), self.book.known(job_id).row(), retain=True)
        out, self.out = self.out, []
        return out

    def announce_rest(self, now: Now) -> None:
        """Publish some of the rows that had to wait."""
        for job_id in [*islice(self.unsaid, max(0, ROWS_AT_ONCE - len(self.rows)))]:
            del self.unsaid[job_id]
            self.rows[job_id] = None
        if self.unsaid:
            self.timers.set(("rows",), now.mono_s + ROWS_EVERY_S)

    def note(self, host: str, report: Any, verdict: Any) -> None:
        """Answer a report of an agent."""
        job = self.book.get(report.job_id)
        self.publish(
            self.topics.request(host),
            m.Noted(
                id=self.new_id(),
                report_id=report.id,
                job_id=report.job_id,
                attempt=report.attempt,
                verdict=verdict,
                state=None if job is None else job.state.value,
            ),
        )

    def record(self, host: str) -> HostRecord:
        """Return what is remembered of a host."""
        return self.records.get(host) or HostRecord(host)

    def remember(self, record: Record) -> None:
        """Change what is remembered of hosts, or note an action, in the ledger as well."""
        self.record_changes.append(record)
        if isinstance(record, FleetRecord):
            self.fleet = record
            # Who was looked at while it was paused took nothing, and is not known to be open.
            self.changed_hosts.update(dict.fromkeys(self.hosts))
            self.unsettled = True
        elif isinstance(record, HostForgotten):
            self.records.pop(record.host, None)
            self.look_at(record.host)
        elif isinstance(record, HostRecord):
            self.records[record.host] = record
            self.look_at(record.host)

    def presence(self, host: Host, now: Now) -> str:
        """Return in one word how a host is: as `Host.presence` does, or `revoked`."""
        return "revoked" if host.name in self.revoked else host.presence(now)

    def restraints(self, host: str) -> tuple[Reason, ...]:
        """Return what operators have decided that keeps jobs from a host."""
        revocation = self.revoked.get(host)
        revoked = () if revocation is None else (revocation.restraint(host),)
        return (*revoked, *self.record(host).restraints(), *self.fleet.restraints())

    def known_hosts(self) -> frozenset[str]:
        """Return the names of the hosts that have come, or that the ledger has something of."""
        had_jobs = {job.host for job in self.book.all() if job.host is not None}
        return frozenset({*self.hosts, *self.records, *had_jobs})

    def policy(self, host: str) -> HostPolicy:
        """Return what the plan says of a host."""
        return self.plan.hosts.get(host) or HostPolicy(host)

    def grace_s(self) -> float:
        """Return how long a `prefer_cuda` job waits for a CUDA host."""
        by_plan_s = self.plans_grace_s()
        return (self.settings.prefer_cuda_grace_s or 0.0) if by_plan_s is None else by_plan_s

    def plans_grace_s(self) -> float | None:
        """Return the plan's grace for CUDA; none if the coordinator's settings override it."""
        if self.settings.prefer_cuda_grace_s is not None:
            return None
        return self.plan.prefer_cuda_grace_s

    def drop(self, kind: str, why: str) -> None:
        """Count a message as garbage; the first of its kind is logged."""
        self.dropped[kind] += 1
        if self.dropped[kind] == 1:
            self.do(Warn(f"dropped a message on {kind}: {why} (further ones are only counted)"))

    def refuse(self, kind: str, why: str) -> None:
        """Count what somebody may not do; the first of its kind is logged."""
        self.refused[kind] += 1
        if self.refused[kind] == 1:
            self.do(Warn(f"refused {why} (further ones are only counted)"))

    def remember_answer(self, client: str, response: m.OperatorResponse, now: Now) -> None:
        """Keep the answer to a command, so that its repetition is answered alike."""
        self.answers[(client, response.id)] = entries.Answer(response, now.wall_s)
        while len(self.answers) > MAX_ANSWERS:
            self.answers.popitem(last=False)
