"""What the coordinator's core holds in memory, and the few ways in which its handlers act on it.

The handlers (`presence`, `assignment`, `handover`, `downloads`, `planning`, `operators`) are free
functions over a `World`. They move jobs by `World.move` and speak by `World.publish`, nothing else.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import JsonValue

from broker.auth import OperatorKey
from broker.clock import Now, Randomness
from broker.messages import Assign, Noted, OperatorResponse, Wire, encode
from broker.stream import Receiver, Sender
from broker.timers import Timers
from broker.topics import Topics
from broker.wire import Outgoing
from coordinator.effects import Effect, Warn
from coordinator.hosts import Host
from coordinator.jobs import Job, JobBook
from coordinator.plan import HostPolicy, Plan
from coordinator.records import HostForgotten, HostRecord, Record, RequestKey
from coordinator.states import FINAL, Event, JobState

MAX_HOSTS: Final = 20_000
MAX_ANSWERS: Final = 4096
CHUNK_BYTES: Final = 256 * 1024  # of what is downloaded


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """What the core needs to know of its surroundings. Durations are in seconds."""

    instance: str
    boot_id: str
    machine: str = ""
    version: str = ""
    started_at: str = ""
    manifest: str | None = None
    broker: str = ""
    stale_after_s: float = 600.0
    max_attempts: int = 3
    claim_timeout_s: float = 30.0
    host_timeout_s: float = 100.0
    crash_grace_s: float = 120.0
    sleep_grace_s: float = 7200.0
    prefer_cuda_grace_s: float | None = None
    window_chunks: int = 16
    operator_key: OperatorKey | None = None
    request_window_s: float = 60.0
    trainers: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    home_commands: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """An assignment that has not been answered yet."""

    request: Assign
    host: str
    until_s: float
    sent: int


@dataclass(frozen=True, slots=True)
class Holdback:
    """A host refused a job: it is not asked again until then."""

    until_s: float
    times: int
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """A cancel that has not been answered yet."""

    why: str
    sent: int
    keep_finished: bool = False


@dataclass(frozen=True, slots=True)
class Expected:
    """A job whose artifact is awaited: its result, or a checkpoint of a job that is given back."""

    job_id: str
    attempt: int
    host: str
    size_bytes: int
    metrics: Mapping[str, Any]
    report: Any = None
    is_checkpoint: bool = False


@dataclass(slots=True)
class Upload:
    """An artifact on its way in. `receiver` is none until its part file is open."""

    artifact_id: str
    host: str
    size_bytes: int
    chunk_bytes: int
    since_s: float
    receiver: Receiver | None = None
    finishing: bool = False


@dataclass(slots=True)
class Download:
    """An artifact on its way to an operator's client, or a checkpoint on its way to a host."""

    artifact_id: str
    sender: Sender
    last_s: float
    topic_of: Callable[[int], str]


@dataclass(slots=True)
class Evidence:
    """What speaks against one host: jobs that failed on it, and those that work elsewhere."""

    failed: dict[str, None] = field(default_factory=dict)
    proven: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a command, none while it is carried out, and when that was (wall clock)."""

    response: OperatorResponse | None
    wall_s: float


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
    plan: Plan | None = None
    timers: Timers[tuple[str, ...]] = field(default_factory=Timers)
    claims: dict[str, Claim] = field(default_factory=dict)
    holdbacks: dict[tuple[str, str], Holdback] = field(default_factory=dict)
    stops: dict[tuple[str, str, int], Stop] = field(default_factory=dict)
    pending_since_s: dict[str, float] = field(default_factory=dict)
    retry_at_s: dict[str, float] = field(default_factory=dict)
    records: dict[str, HostRecord] = field(default_factory=dict)
    record_changes: list[Record] = field(default_factory=list)
    evidence: dict[str, Evidence] = field(default_factory=dict)
    expected: dict[str, Expected] = field(default_factory=dict)
    uploads: dict[str, Upload] = field(default_factory=dict)
    downloads: dict[str, Download] = field(default_factory=dict)
    answers: OrderedDict[RequestKey, Answer] = field(default_factory=OrderedDict)
    dropped: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    turned_away_s: deque[float] = field(default_factory=deque)
    home_commands_s: deque[float] = field(default_factory=deque)
    session: str = ""
    out: list[Effect] = field(default_factory=list)
    unsettled: bool = True

    def publish(self, topic: str, message: Wire, qos: int = 1, *, retain: bool = False) -> None:
        """Send a message after the ledger has been committed."""
        self.out.append(Outgoing(topic, encode(message), qos, retain))

    def do(self, effect: Effect) -> None:
        """Ask the shell for something, after the ledger has been committed."""
        self.out.append(effect)

    def move(
        self, job: Job, event: Event, now: Now, who: str, why: str = "", **changes: Any
    ) -> Job:
        """Move a job, keep its timers in step, and tell whoever watches it."""
        after = self.book.move(job, event, now, who, why, **changes)
        if not after.is_held:
            self.claims.pop(job.job_id, None)
            self.timers.cancel(("assign", job.job_id))
            self.timers.cancel(("lease", job.job_id))
        if after.state is JobState.PENDING and job.state is not JobState.PENDING:
            self.pending_since_s[job.job_id] = now.mono_s
        elif after.state is not JobState.PENDING:
            self.pending_since_s.pop(job.job_id, None)
            self.retry_at_s.pop(job.job_id, None)
            self.timers.cancel(("retry", job.job_id))
        if event is Event.ASSIGNED:
            self._expect_nothing(job.job_id)
        if after.state in FINAL:
            # A job that was lost too often is failed, but its result may still be on its way.
            self._forget(job.job_id, expected=event is not Event.EXHAUSTED)
        if after.state is not JobState.RUNNING or event is Event.CHANGED:
            self.unsettled = True  # there may be a slot, or a job, that there was not before
        self.announce(after, now)
        return after

    def expect(self, artifact_id: str, expected: Expected) -> None:
        """Await an artifact; a job awaits one at a time."""
        self._expect_nothing(expected.job_id)
        self.expected[artifact_id] = expected

    def _expect_nothing(self, job_id: str) -> None:
        for artifact_id in [key for key, of in self.expected.items() if of.job_id == job_id]:
            del self.expected[artifact_id]

    def _forget(self, job_id: str, *, expected: bool) -> None:
        if expected:
            self._expect_nothing(job_id)
        for key in [key for key in self.holdbacks if key[0] == job_id]:
            del self.holdbacks[key]
        for host in self.hosts.values():
            host.progress.pop(job_id, None)

    def announce(self, job: Job, now: Now) -> None:
        """Publish a job's row, and have the summary follow."""
        self.publish(self.topics.job(job.job_id), job.row(), retain=True)
        if ("summary",) not in self.timers:
            self.timers.set(("summary",), now.mono_s + 0.2)

    def note(self, host: str, report: Any, verdict: Any) -> None:
        """Answer a report of an agent."""
        job = self.book.get(report.job_id)
        self.publish(
            self.topics.request(host),
            Noted(
                id=self.new_id(),
                report_id=report.id,
                job_id=report.job_id,
                attempt=report.attempt,
                verdict=verdict,
                state=None if job is None else job.state.value,
            ),
        )

    def renew_lease(self, job: Job, now: Now) -> None:
        """The job's host vouches for it."""
        self.timers.set(("lease", job.job_id), now.mono_s + self.settings.stale_after_s)

    def record(self, host: str) -> HostRecord:
        """Return what is remembered of a host."""
        return self.records.get(host) or HostRecord(host)

    def remember(self, record: Record) -> None:
        """Change what is remembered of a host, or note an action, in the ledger as well."""
        self.record_changes.append(record)
        if isinstance(record, HostForgotten):
            self.records.pop(record.host, None)
        elif isinstance(record, HostRecord):
            self.records[record.host] = record
            self.unsettled = True

    def policy(self, host: str) -> HostPolicy:
        """Return what the plan says of a host."""
        policy = self.plan.hosts.get(host) if self.plan else None
        return policy or HostPolicy(name=host)

    def grace_s(self) -> float:
        """Return how long a `prefer_cuda` job waits for a CUDA host."""
        override_s = self.settings.prefer_cuda_grace_s
        if override_s is not None:
            return override_s
        return self.plan.prefer_cuda_grace_s if self.plan else 300.0

    def held_at(self, host: str) -> list[Job]:
        """Return the jobs that the ledger says `host` holds."""
        held = self.book.in_state(JobState.CLAIMED, JobState.RUNNING)
        return [job for job in held if job.host == host]

    def drop(self, kind: str, why: str) -> None:
        """Count a message as garbage; the first of its kind is logged."""
        self.dropped[kind] += 1
        if self.dropped[kind] == 1:
            self.do(Warn(f"dropped a message on {kind}: {why} (further ones are only counted)"))

    def remember_answer(self, client: str, response: OperatorResponse, now: Now) -> None:
        """Keep the answer to a command, so that its repetition is answered alike."""
        self.answers[(client, response.id)] = Answer(response, now.wall_s)
        while len(self.answers) > MAX_ANSWERS:
            self.answers.popitem(last=False)
