"""The jobs in memory: the mirror of the ledger that the core decides on.

Every movement of a job goes through `JobBook.move`, which checks it against the transition table,
changes the mirror, and records the `Change` that the shell commits to the ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import JsonValue

from broker.clock import Now, seconds_of
from broker.protocol.messages import JobRow, TrainerInfo
from coordinator.jobs import result_words
from coordinator.jobs.causes import NONE, Cause, in_words
from coordinator.jobs.plan_entries import JobSpec
from coordinator.jobs.states import FINAL, HELD, Event, JobState, leads_to

MAX_WHY_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """Where an attempt of a job left off: an artifact in the store."""

    artifact_id: str
    size_bytes: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Job:
    """One row of the ledger, with its spec parsed. Times are RFC 3339 in UTC.

    `failures` are attempts that failed and were tried again; the next waits until `not_before`.
    `submitted_by` is who has asked for it beside the manifest, if anybody has. `ran_s` is how long
    the trainer of the attempt that ended it ran, where its agent has said so. What attempts up to
    `void_attempt` finish is not taken any more: a requeue was to begin anew.
    """

    spec: JobSpec
    state: JobState
    created_at: str
    pending_since: str
    in_plan: bool = True
    attempt: int = 0
    losses: int = 0
    host: str | None = None
    instance: str | None = None
    error: str | None = None
    error_kind: str | None = None
    artifact_id: str | None = None
    metrics: Mapping[str, JsonValue] | None = None
    started_at: str | None = None
    finished_at: str | None = None
    failures: int = 0
    not_before: str | None = None
    checkpoint: StoredCheckpoint | None = None
    submitted_by: str | None = None
    ran_s: float | None = None
    void_attempt: int = 0

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.spec.job_id

    @property
    def is_held(self) -> bool:
        """Whether a host holds it."""
        return self.state in HELD

    def is_at(self, host: str, attempt: int) -> bool:
        """Whether `host` may speak for this job with `attempt`: nobody was given it since."""
        return (self.attempt, self.host) == (attempt, host)

    def elapsed_s(self, now: Now) -> float:
        """Return for how many seconds it has run, if it does."""
        return max(0.0, now.wall_s - (seconds_of(self.started_at) or now.wall_s))

    def row(self) -> JobRow:
        """Return the row that people and scripts see."""
        spec = self.spec
        return JobRow(
            job_id=spec.job_id,
            name=spec.name,
            model=spec.model,
            mode=spec.mode,
            program=spec.program_digest() or None,
            datasets=tuple(dict.fromkeys(one.digest for one in spec.data)),
            state=self.state.value,
            priority=spec.priority,
            attempt=self.attempt,
            host=None if self.state is JobState.PENDING else self.host,
            error=self.error,
            error_kind=self.error_kind,
            artifact_id=self.artifact_id,
            metrics=None if self.metrics is None else dict(self.metrics),
            marks=result_words.marks_of(self.metrics),
            created_at=self.created_at,
            started_at=self.started_at,
            finished_at=self.finished_at,
            ran_s=self.ran_s,
            in_plan=self.in_plan,
            submitted_by=self.submitted_by,
        )


@dataclass(frozen=True, slots=True)
class Change:
    """One movement of one job: what the ledger is to record, on the condition that nothing moved.

    `before` is none for a job that is new. `ran_s` is how long the attempt's trainer ran, where its
    agent's report has brought that; `size_bytes` is that of a result which it brings. `attempt` is
    the one that it is about: the newest, or an earlier one whose result completes the job.
    """

    event: Event
    before: Job | None
    after: Job
    at: str
    who: str
    why: Cause
    ran_s: float | None = None
    size_bytes: int | None = None
    by_attempt: int | None = None

    @property
    def attempt(self) -> int:
        """The attempt that it is about."""
        return self.after.attempt if self.by_attempt is None else self.by_attempt

    def __str__(self) -> str:
        """Return one line for the log; control characters are replaced."""
        job = self.after
        host = job.host or (self.before.host if self.before else None)
        where = f" on {host}" if host else ""
        why = (in_words(self.why) or job.error or "").strip().partition("\n")[0][:MAX_WHY_CHARS]
        line = f"job {job.spec.name} ({job.job_id[:12]}), attempt {self.attempt}: {self.event}"
        told = f"{line}{where}{f': {why}' if why else ''}"
        if told.isprintable():
            return told
        return "".join(one if one.isprintable() else " " for one in told)


# What a movement clears or sets besides the state, unless the caller says otherwise.
_ENTERING: Final[dict[JobState, dict[str, Any]]] = {
    JobState.PENDING: {
        "instance": None,
        "error": None,
        "error_kind": None,
        "artifact_id": None,
        "metrics": None,
        "started_at": None,
        "finished_at": None,
        "ran_s": None,
    },
}


class JobBook:
    """All jobs, by id and by state, and the changes that are not committed yet."""

    def __init__(self, jobs: Mapping[str, Job] | None = None) -> None:
        """Take over the jobs as the ledger has them."""
        self._jobs: dict[str, Job] = {}
        self._by_state: dict[JobState, dict[str, None]] = {state: {} for state in JobState}
        self._held: dict[str, dict[str, None]] = {}
        self._order: list[str] | None = None
        self._named: dict[str, dict[str, None]] = {}  # also by the names that they had before
        self._followers: dict[str, dict[str, None]] = {}  # by the job before them
        for job in (jobs or {}).values():
            self._put(None, job)
        self._changes: list[Change] = []
        self._moved: dict[str, None] = dict(self._by_state[JobState.PENDING])

    def get(self, job_id: str) -> Job | None:
        """Return the job, or none."""
        return self._jobs.get(job_id)

    def known(self, job_id: str) -> Job:
        """Return the job, which is known to be there: jobs do not leave the book."""
        return self._jobs[job_id]

    def all(self) -> Iterator[Job]:
        """Every job, in no particular order."""
        return iter(self._jobs.values())

    def in_state(self, *states: JobState) -> list[Job]:
        """Return the jobs in any of `states`."""
        return [self._jobs[job_id] for state in states for job_id in self._by_state[state]]

    def in_claim_order(self, *states: JobState) -> list[Job]:
        """Return the jobs in `states` (all, when none is named), next to be claimed first."""
        if self._order is None:
            ordered = sorted(self._jobs.values(), key=claim_order)
            self._order = [job.job_id for job in ordered]
        jobs = (self._jobs[job_id] for job_id in self._order)
        return [job for job in jobs if not states or job.state in states]

    def held_by(self, host: str) -> list[Job]:
        """Return the jobs that `host` holds by the ledger."""
        return [self._jobs[job_id] for job_id in self._held.get(host, ())]

    def followers(self, job_id: str) -> list[Job]:
        """Return the jobs that come after this one, or did before a reload."""
        return [self._jobs[one] for one in self._followers.get(job_id, ())]

    def look_at(self, job_id: str) -> None:
        """Have a job among those that changed: something about it did, and is not in the book."""
        self._moved[job_id] = None

    def take_moved(self) -> list[Job]:
        """Return the jobs that changed since the last call; at first all that are pending."""
        moved, self._moved = self._moved, {}
        return [self._jobs[job_id] for job_id in moved]

    def counts(self) -> dict[str, int]:
        """Return how many jobs are in each state; all six states are named."""
        return {state.value: len(ids) for state, ids in self._by_state.items()}

    def planned(self) -> Counter[JobState]:
        """Return how many jobs of the plan are in each state."""
        return Counter(job.state for job in self._jobs.values() if job.in_plan)

    def trainers(self) -> dict[str, TrainerInfo]:
        """Return the trainers of all jobs, as far as these tell of them: they take anything."""
        newest: dict[str, Job] = {}
        for job in self._jobs.values():
            if job.spec.program is not None:
                continue
            known = newest.setdefault(job.spec.model, job)
            if (job.in_plan, job.created_at) > (known.in_plan, known.created_at):
                newest[job.spec.model] = job
        return {
            model: TrainerInfo(
                hyper_schema={}, telemetry=bool(job.spec.mode), version=job.spec.version
            )
            for model, job in newest.items()
        }

    def named(self, name: str) -> list[Job]:
        """Return the jobs of exactly this name."""
        known = (self._jobs[job_id] for job_id in self._named.get(name, ()))
        return [job for job in known if job.spec.name == name]

    def find(self, text: str) -> list[Job]:
        """Return the jobs that `text` may mean: by name, by id, or by the start of either."""
        exact = self._jobs.get(text)
        if exact is not None:
            return [exact]
        if named := self.named(text):
            # An entry of the plan takes precedence over an orphan of the same name.
            return [job for job in named if job.in_plan] or named
        found = [
            job
            for job in self._jobs.values()
            if text and (job.spec.name.startswith(text) or job.job_id.startswith(text))
        ]
        return [
            job
            for job in found
            if job.in_plan
            or job.job_id.startswith(text)
            or not any(other.in_plan for other in self.namesakes(job))
        ]

    def namesakes(self, job: Job) -> list[Job]:
        """Return the other jobs of the same name: a job that was changed leaves an orphan."""
        return [other for other in self.named(job.spec.name) if other.job_id != job.job_id]

    def add(self, spec: JobSpec, now: Now, who: str, submitted_by: str | None = None) -> Job:
        """Add a new job as pending."""
        at = now.text()
        job = Job(
            spec, JobState.PENDING, created_at=at, pending_since=at, submitted_by=submitted_by
        )
        self._record(Change(Event.ADDED, None, job, at, who, NONE))
        return job

    def move(
        self, job: Job, event: Event, now: Now, who: str, why: Cause = NONE,
        ran_s: float | None = None, size_bytes: int | None = None, by_attempt: int | None = None,
        **changes: Any,
    ) -> Job:  # fmt: skip
        """Carry `event` out on `job` and return it. AssertionError: the table forbids it."""
        target = leads_to(job.state, event)
        if target is None:
            raise AssertionError(f"{event} in state {job.state} of job {job.job_id}")
        at = now.text()
        fields: dict[str, Any] = {}
        if target is not job.state:
            fields = dict(_ENTERING.get(target, {}))
            if target is JobState.PENDING:
                fields["pending_since"] = at
            if target in FINAL:
                fields |= {"finished_at": at, "checkpoint": None}
            if job.state is JobState.PENDING:
                fields["not_before"] = None
        if event is Event.REQUEUED:
            fields["void_attempt"] = job.attempt
        if ran_s is not None and target in FINAL:
            fields["ran_s"] = ran_s
        after = replace(job, state=target, **{**fields, **changes})
        if after.attempt < job.attempt:
            raise AssertionError(f"attempt {after.attempt} after {job.attempt} of {job.job_id}")
        self._record(Change(event, job, after, at, who, why, ran_s, size_bytes, by_attempt))
        return after

    def take_changes(self) -> list[Change]:
        """Return the changes since the last call; the caller commits them."""
        changes, self._changes = self._changes, []
        return changes

    def _record(self, change: Change) -> None:
        self._put(change.before, change.after)
        self._moved[change.after.job_id] = None
        self._changes.append(change)

    def _put(self, before: Job | None, after: Job) -> None:
        """Take a job as it is now; it was so `before`."""
        job_id = after.job_id
        if before is not None:
            del self._by_state[before.state][job_id]
            self._held.get(before.host or "", {}).pop(job_id, None)
        self._jobs[job_id] = after
        self._by_state[after.state][job_id] = None
        if after.is_held and after.host is not None:
            self._held.setdefault(after.host, {})[job_id] = None
        if before is None or before.spec is not after.spec:
            self._named.setdefault(after.spec.name, {})[job_id] = None
            for one in after.spec.predecessors():
                self._followers.setdefault(one, {})[job_id] = None
        if before is None or claim_order(before) != claim_order(after):
            self._order = None


def claim_order(job: Job) -> tuple[int, str, str]:
    """Return the sort key of the claim order; the smallest is next."""
    return (-job.spec.priority, job.created_at, job.spec.name)
