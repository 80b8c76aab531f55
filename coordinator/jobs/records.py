"""What the ledger remembers besides the jobs: of hosts, and of what operators did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from pydantic import JsonValue

from broker.protocol.messages import Offer, OperatorResponse, Why
from broker.protocol.reasons import Reason, reason
from coordinator.jobs.causes import Cause
from coordinator.jobs.plan_entries import Plan

RequestKey = tuple[str, str]  # the client, and what it called its request
JOURNAL: Final = "journal"  # in the client's place: whoever tells of the CA's entry, it is one


@dataclass(frozen=True, slots=True)
class HostRecord:
    """One row of the ledger's table of hosts.

    `drained`: an operator keeps new jobs off it; `drained_now`: and has it give back what it holds.
    `quarantine` names the first jobs that failed on it and were completed elsewhere, for which the
    fleet itself keeps jobs off it since `quarantine_at`; empty when it does not. `at` and `who`
    belong to an operator's newest change. `snoozed_until` (empty: it is not) ends by itself,
    `snooze_s` after it was said; `snoozed_now` is to it what `drained_now` is to a drain. Times are
    RFC 3339.
    """

    host: str
    drained: bool = False
    quarantine: tuple[str, ...] = ()
    quarantine_at: str = ""
    at: str = ""
    who: str = ""
    drained_now: bool = False
    snoozed_until: str = ""
    snoozed_by: str = ""
    snooze_s: float = 0.0
    snoozed_now: bool = False

    def gives_back(self) -> Why | None:
        """Return why it is to give back what it holds; none when it may go on with that."""
        if self.drained and self.drained_now:
            return Why(code="drained", by=self.who)
        if self.snoozed_until and self.snoozed_now:
            return Why(code="snoozed", by=self.snoozed_by)
        return None

    def without_snooze(self) -> HostRecord:
        """Return it as it is when its snooze is over."""
        return replace(self, snoozed_until="", snoozed_by="", snooze_s=0.0, snoozed_now=False)

    def is_barred(self) -> bool:
        """Whether it is given no jobs until somebody lifts that."""
        return self.drained or bool(self.quarantine)

    def restraints(self) -> tuple[Reason, ...]:
        """Return every reason why it is given no jobs; `fleet resume` lifts them all."""
        host, found = self.host, []
        if self.drained:
            found.append(reason("drained", host=host, who=self.who, at=self.at))
        if self.quarantine:
            jobs: list[JsonValue] = [*self.quarantine]
            found.append(reason("quarantine", host=host, jobs=jobs, at=self.quarantine_at))
        if self.snoozed_until:
            until, who = self.snoozed_until, self.snoozed_by
            found.append(reason("snoozed", host=host, who=who, until=until))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class FleetRecord:
    """What is decided about the whole fleet: whether it is `paused`, when (RFC 3339), by whom.

    `plan` is the last good one, without its jobs; none: no manifest was ever read.
    """

    paused: bool = False
    at: str = ""
    who: str = ""
    plan: Plan | None = None

    def restraints(self) -> tuple[Reason, ...]:
        """Return the reason why no new jobs are given out; empty when they are."""
        return (reason("paused", who=self.who, at=self.at),) if self.paused else ()

    def told(self) -> JsonValue:
        """Return that reason as JSON values; none when there is none."""
        return next((one.to_dict() for one in self.restraints()), None)


@dataclass(frozen=True, slots=True)
class HostForgotten:
    """A host whose row in the ledger's table of hosts, if it has one, is to go."""

    host: str


@dataclass(frozen=True, slots=True)
class Action:
    """One row of the ledger's table of actions: who has asked for what change, and what came of it.

    `at` is RFC 3339. `key` is none for what the coordinator does by itself. An action with an
    `answer` was looked at, and is not carried out again; one without was turned away at the door.
    """

    at: str
    who: str
    action: str
    outcome: Literal["done", "refused"]
    what: Cause
    key: RequestKey | None = None
    job_id: str | None = None
    host: str | None = None
    answer: OperatorResponse | None = None


@dataclass(frozen=True, slots=True)
class BundleKept:
    """A small artifact that the ledger keeps until it is a file of the store."""

    artifact_id: str
    data: bytes = field(repr=False)
    model: str
    mode: str


@dataclass(frozen=True, slots=True)
class BundlesFiled:
    """These artifacts are files of the store: the ledger need not keep them any more."""

    artifact_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PushedRecord:
    """A program or a dataset, a row of the ledger; `at` is RFC 3339, `who` has pushed it."""

    offer: Offer
    at: str
    who: str


@dataclass(frozen=True, slots=True)
class PushedRemoved:
    """A program or a dataset whose row in the ledger is to go."""

    title: str


@dataclass(frozen=True, slots=True)
class Revocation:
    """A host's certificate was taken back: when (RFC 3339), and by whom."""

    at: str
    who: str

    def restraint(self, host: str) -> Reason:
        """Return why the host is given no jobs."""
        return reason("revoked", host=host, who=self.who, at=self.at)


@dataclass(frozen=True, slots=True)
class Result:
    """What an attempt of a job has brought: an artifact. Times are RFC 3339.

    It came `at`; a requeue took it from the job at `set_aside_at`, none while the job has it, and
    `kept_until` is none as long as that. `artifact_id` and `size_bytes` are none, and `metrics`
    (the main one, once it is set aside) empty, where the ledger does not tell. `is_there`: it can
    be fetched.
    """

    attempt: int
    at: str
    host: str | None
    artifact_id: str | None = None
    size_bytes: int | None = None
    metrics: Mapping[str, JsonValue] = field(default_factory=dict)
    set_aside_at: str | None = None
    kept_until: str | None = None
    is_there: bool = False


Record = (
    HostRecord
    | FleetRecord
    | HostForgotten
    | Action
    | BundleKept
    | BundlesFiled
    | PushedRecord
    | PushedRemoved
)
