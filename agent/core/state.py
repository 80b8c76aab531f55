"""The agent's state in memory, and what its handlers share."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from agent.core.core_settings import CoreSettings
from agent.core.effects import Effect, Part, Vitals, Warn
from broker.clock import Now, Randomness, Timers
from broker.protocol import messages as m
from broker.protocol.link_events import Outgoing
from broker.protocol.topics import Topics
from broker.stream.stream import Receiver, Sender

MAX_ENDED: Final = 4096
MAX_SENT: Final = 64
LINGER_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Hold:
    """Why the host takes no jobs now: snoozed, quiet or in_use.

    `release`: what runs is given back, `at_once` or after a grace.
    """

    why: m.Why
    release: bool
    at_once: bool = True


class Phase(StrEnum):
    """Where a run stands."""

    FETCHING = "fetching"  # its program, datasets, inputs, the checkpoint that it goes on from
    PREPARING = "preparing"  # the packages of its program are installed
    READY = "ready"  # all that its trainer needs is here, but for a lease
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    BUNDLING = "bundling"  # its result
    GIVING_BACK = "giving back"  # its checkpoint is bundled


UNSTARTED: Final = frozenset({Phase.FETCHING, Phase.PREPARING, Phase.READY})
ENDING: Final = frozenset({Phase.BUNDLING, Phase.GIVING_BACK})  # its trainer has ended
NEXT_PHASES: Final = {
    Phase.FETCHING: frozenset({Phase.PREPARING, Phase.READY}),
    Phase.PREPARING: frozenset({Phase.FETCHING}),
    Phase.READY: frozenset({Phase.STARTING}),
    Phase.STARTING: frozenset({Phase.RUNNING, Phase.STOPPING}) | ENDING,
    Phase.RUNNING: frozenset({Phase.STOPPING}) | ENDING,
    Phase.STOPPING: ENDING,
    Phase.BUNDLING: frozenset[Phase](),
    Phase.GIVING_BACK: frozenset[Phase](),
}  # the diagram in architecture.md; a run may be over from each phase
_TOLD: Final[Mapping[Phase, m.Phase]] = {
    Phase.FETCHING: "fetching",
    Phase.PREPARING: "preparing",
    Phase.READY: "starting",
    Phase.STARTING: "starting",
    Phase.RUNNING: "running",
    Phase.STOPPING: "stopping",
    Phase.BUNDLING: "bundling",
    Phase.GIVING_BACK: "bundling",
}


class Stop(StrEnum):
    """Why a run was told to end; the value is for the log."""

    OVER_LIMIT = "ended"
    RELEASED = "given back"
    CANCELLED = "cancelled"


NEXT_STOPS: Final = {
    None: frozenset(Stop),
    Stop.OVER_LIMIT: frozenset({Stop.CANCELLED}),
    Stop.RELEASED: frozenset({Stop.CANCELLED}),
    Stop.CANCELLED: frozenset[Stop](),
}


@dataclass(frozen=True, slots=True)
class Fetch:
    """What an attempt fetches for a part that it needs."""

    part: Part
    artifact_id: str
    size_bytes: int
    receiver: Receiver


@dataclass(slots=True)
class Run:
    """A job that has a slot, or will have the next one that is free."""

    assign: m.Assign
    slot: int | None
    gpu: int | None
    phase: Phase = Phase.FETCHING
    lease_s: float = 0.0  # how long the newest lease is; 0: the coordinator has yet to grant one
    lease_until_s: float = 0.0  # its end (monotonic)
    pid: int = 0
    began_s: float | None = None  # when its trainer began (monotonic)
    ran_s: float | None = None  # how long that ran, once it has ended
    stopping: Stop | None = None
    why: m.Why | None = None
    stop_requests: list[str] = field(default_factory=list)
    progress: dict[str, Any] = field(default_factory=dict)
    has_news: bool = False  # progress that was not told yet
    result: dict[str, Any] | None = None
    error: str = ""
    error_kind: str | None = None
    tail: list[str] = field(default_factory=list)
    bundlings: int = 0
    fault: m.Fault | None = None  # which is why it is not bundled yet
    is_kept: bool = False  # its result, for another process of this agent
    heard_s: float = 0.0
    lines_at_s: float = 0.0
    lines: int = 0  # of this second
    held: list[str] = field(default_factory=list)  # the last ones beyond those it may print in it
    left_out: int = 0  # before those
    said: int = 0  # lines that have been numbered
    parts: list[Part] = field(default_factory=list)  # that are not known to be here
    fetch: Fetch | None = None
    resumes: bool = False  # its trainer goes on from a checkpoint
    fetched_bytes: int = 0
    took_s: dict[Phase, float] = field(default_factory=lambda: defaultdict(float))
    since_s: float = 0.0  # when the phase began of which that is noted next (monotonic)

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.assign.job_id

    @property
    def attempt(self) -> int:
        """The attempt."""
        return self.assign.attempt

    def move(self, phase: Phase) -> None:
        """Go on to the next phase."""
        if phase not in NEXT_PHASES[self.phase]:
            raise AssertionError(f"{self.job_id}: from {self.phase} to {phase}")
        self.phase = phase

    def go_on(self, phase: Phase, now: Now) -> None:
        """Go on to the next phase, and note how long this one took."""
        self.took_s[self.phase] += now.mono_s - self.since_s
        self.since_s = now.mono_s
        self.move(phase)

    def end(self, how: Stop, why: m.Why) -> None:
        """Note why it is to end; the first reason stays, unless it is cancelled."""
        if how in NEXT_STOPS[self.stopping]:
            self.stopping, self.why = how, why

    def share(self) -> float | None:
        """Return how much of the epochs is done."""
        epoch, epochs = self.progress.get("epoch"), self.progress.get("epochs")
        return min(1.0, epoch / epochs) if epoch is not None and epochs else None


@dataclass(slots=True)
class Owed:
    """A report that the coordinator has not noted yet."""

    report: m.Finished | m.Failed | m.Released
    bundle: str = ""  # what travels with the report, if it is small
    sent: int = 0
    sender: Sender | None = None  # while its artifact is uploaded
    refusals: int = 0
    checking: bool = False

    @property
    def artifact_id(self) -> str | None:
        """The bundle that goes with it: a result, or a checkpoint."""
        return None if isinstance(self.report, m.Failed) else self.report.artifact_id

    @property
    def phase(self) -> m.Phase:
        """What a heartbeat says of it."""
        return "reporting" if self.sender is None else "uploading"


@dataclass(slots=True)
class Kept:
    """The last lines of an attempt that no coordinator has heard.

    `last` is the number of the last one, `told` of the last one that was published.
    """

    lines: list[bytes] = field(default_factory=list)
    last: int = 0
    told: int = 0


@dataclass(slots=True)
class State:
    """Everything the core decides on. `slots` lists the CUDA device of each slot, or none."""

    settings: CoreSettings
    topics: Topics
    rng: Randomness
    new_id: Callable[[], str]
    slots: tuple[int | None, ...] = (None,)
    session: str = ""
    connected: bool = False
    coordinator: str = ""  # its session
    coordinator_instance: str = ""
    listening: bool = False  # a coordinator, as far as is known
    capability: m.Capability | None = None
    capability_due: bool = False  # with the next birth that a coordinator brings about
    vitals: Vitals | None = None
    fresh_until_s: float = 0.0  # these figures (monotonic)
    runs: dict[str, Run] = field(default_factory=dict)
    owed: dict[str, Owed] = field(default_factory=dict)
    kept: dict[tuple[str, int], Kept] = field(default_factory=dict)  # by attempt
    sent_s: OrderedDict[str, float] = field(default_factory=OrderedDict)  # what a lease may answer
    suspended_s: float = 0.0  # for how long the machine has slept since it booted
    waiting: list[m.Assign] = field(default_factory=list)
    ended: OrderedDict[str, int] = field(default_factory=OrderedDict)
    refused: dict[str, tuple[int, tuple[m.Objection, ...]]] = field(default_factory=dict)
    timers: Timers[tuple[str, ...]] = field(default_factory=Timers)
    dropped: Counter[str] = field(default_factory=Counter)
    seq: int = 0
    leaving: bool = False
    rules: m.HostRules = field(default_factory=m.HostRules)
    rules_digest: str = ""
    holds: tuple[Hold, ...] = ()
    looked: bool = False
    refuses: tuple[m.Why, ...] = (m.Why(code="starting"),)
    in_use_since_s: float | None = None
    message_bytes: int = 0  # of an artifact in one message, at most
    cut_at_bytes: Counter[int] = field(default_factory=Counter)
    reports: list[bytes] = field(default_factory=list)  # that are to be sent
    reports_due: bool = False  # now
    out: list[Effect] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.message_bytes = self.message_bytes or self.settings.chunk_bytes

    def publish(self, topic: str, message: m.Wire, qos: int = 1, *, retain: bool = False) -> None:
        """Send a message."""
        self.out.append(Outgoing(topic, m.encode(message), qos, retain))

    def do(self, effect: Effect) -> None:
        """Ask the shell for something."""
        self.out.append(effect)

    def report(self, report: m.AgentResponse) -> None:
        """Send a report to the coordinator, with all that wait."""
        self.reports.append(m.encode(report))
        self.reports_due = True

    def report_soon(self, report: m.AgentResponse, now: Now) -> None:
        """Send a report that nobody waits for, with the next one or in `LINGER_S`."""
        self.reports.append(m.encode(report))
        if ("reports",) not in self.timers:
            self.timers.set(("reports",), now.mono_s + LINGER_S)

    def send_reports(self) -> None:
        """Send the reports that wait, in as few messages as fit."""
        topic = self.topics.response(self.settings.host)
        for payload in m.together(self.reports, self.settings.chunk_bytes):
            self.out.append(Outgoing(topic, payload, 1))
        self.reports, self.reports_due = [], False
        self.timers.cancel(("reports",))

    def take_out(self) -> list[Effect]:
        """Return the effects, and after them the reports that are due."""
        if self.reports_due:
            self.send_reports()
        effects, self.out = self.out, []
        return effects

    def run(self, job_id: str, attempt: int) -> Run | None:
        """Return the run of an attempt; none when it does not occupy a slot."""
        run = self.runs.get(job_id)
        return run if run is not None and run.attempt == attempt else None

    def about(self, job_id: str, attempt: int, receipt: str = "") -> dict[str, Any]:
        """Return the fields that every report bears; `receipt` is that of the assignment."""
        return {
            "id": self.new_id(),
            "session": self.session or "-",
            "instance": self.settings.instance,
            "job_id": job_id,
            "attempt": attempt,
            "receipt": receipt,
        }

    def about_run(self, run: Run) -> dict[str, Any]:
        """Return those fields for a run."""
        return self.about(run.job_id, run.attempt, run.assign.receipt)

    def why_refuses(self) -> tuple[m.Why, ...]:
        """Return why this host takes no jobs now; empty: it takes some."""
        if self.leaving:
            return (m.Why(code="leaving"),)
        return self.refuses if self.capability else (m.Why(code="starting"),)

    def sent(self, name: str, now: Now) -> None:
        """Note when something was sent that a lease may answer: an acceptance, a heartbeat."""
        self.sent_s[name] = now.mono_s
        while len(self.sent_s) > MAX_SENT:
            self.sent_s.popitem(last=False)

    def end(self, job_id: str, attempt: int) -> None:
        """Remember that an attempt is over here: a late assignment must not start it again."""
        self.ended[job_id] = max(attempt, self.ended.pop(job_id, 0))
        while len(self.ended) > MAX_ENDED:
            self.ended.popitem(last=False)

    def held(self) -> tuple[m.HeldJob, ...]:
        """Return all that this host holds, runs first."""
        found = [
            _held(run.assign, _TOLD[run.phase], run.share(), run.fault)
            for run in self.runs.values()
        ]
        found += [
            _held(owed.report, owed.phase, owed.sender.share if owed.sender else None)
            for owed in self.owed.values()
        ]
        return tuple(found[: m.MAX_LISTED])

    def beat_soon(self, now: Now) -> None:
        """Send a heartbeat soon after a change."""
        if ("beat-soon",) not in self.timers:
            self.timers.set(("beat-soon",), now.mono_s + 0.2)

    def drop(self, kind: str, why: str) -> None:
        """Count a message as garbage; the first of its kind is logged."""
        self.dropped[kind] += 1
        if self.dropped[kind] == 1:
            self.do(Warn(f"dropped a message on {kind}: {why} (further ones are only counted)"))


def _held(
    of: m.Assign | m.Finished | m.Failed | m.Released, phase: m.Phase, progress: float | None,
    fault: m.Fault | None = None,
) -> m.HeldJob:  # fmt: skip
    return m.HeldJob(
        job_id=of.job_id, attempt=of.attempt, phase=phase, progress=progress, receipt=of.receipt,
        fault=fault,
    )  # fmt: skip
