"""What the ledger remembers besides the jobs: of hosts, and of what operators did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from pydantic import JsonValue

from broker.protocol.messages import OperatorResponse
from coordinator.jobs.causes import Cause

RequestKey = tuple[str, str]  # the client, and what it called its request
JOURNAL: Final = "journal"  # in the client's place: whoever tells of the CA's entry, it is one


def moment(at: str) -> str:
    """Return a time of the ledger (RFC 3339 in UTC) as reasons tell it: `2026-11-21 22:01 UTC`."""
    return f"{at[:16].replace('T', ' ')} UTC"


@dataclass(frozen=True, slots=True)
class HostRecord:
    """One row of the ledger's table of hosts.

    `drained`: an operator keeps new jobs off it; `drained_now`: and has it give back what it holds.
    `quarantine` is in words why the fleet itself keeps jobs off it, and since when; empty when it
    does not. `at` (RFC 3339) and `who` belong to an operator's newest change. `snoozed_until` (RFC
    3339; empty: it is not) ends by itself, `snooze_s` after it was said; `snoozed_now` is to it
    what `drained_now` is to a drain.
    """

    host: str
    drained: bool = False
    quarantine: str = ""
    at: str = ""
    who: str = ""
    drained_now: bool = False
    snoozed_until: str = ""
    snoozed_by: str = ""
    snooze_s: float = 0.0
    snoozed_now: bool = False

    def gives_back(self) -> str:
        """Return why it is to give back what it holds; empty when it may go on with that."""
        if self.drained and self.drained_now:
            return f"drained by {self.who}"
        if self.snoozed_until and self.snoozed_now:
            return f"snoozed by {self.snoozed_by}"
        return ""

    def without_snooze(self) -> HostRecord:
        """Return it as it is when its snooze is over."""
        return replace(self, snoozed_until="", snoozed_by="", snooze_s=0.0, snoozed_now=False)

    def snoozed(self) -> str:
        """Return that it is snoozed, until when, and the remedy; empty when it is not."""
        why = self.why_snoozed()
        return f"{why}; `fleet resume {self.host}` ends it" if why else ""

    def barred(self) -> tuple[str, ...]:
        """Return every reason why it is given no jobs until somebody lifts it, with the remedy."""
        return tuple(f"{why}; `fleet resume {self.host}` lifts it" for why in self._why_barred())

    def lifted_by_resume(self) -> tuple[str, ...]:
        """Return everything that a resume lifts, for who is at that: without the remedy."""
        return (*self._why_barred(), *filter(None, [self.why_snoozed()]))

    def why_snoozed(self) -> str:
        """Return that it is snoozed, until when and by whom; empty when it is not."""
        if not self.snoozed_until:
            return ""
        return f"snoozed until {moment(self.snoozed_until)} by {self.snoozed_by}"

    def _why_barred(self) -> tuple[str, ...]:
        drained = f"drained by {self.who} at {moment(self.at)}" if self.drained else ""
        quarantine = f"in quarantine: {self.quarantine}" if self.quarantine else ""
        return tuple(filter(None, (drained, quarantine)))


@dataclass(frozen=True, slots=True)
class FleetRecord:
    """What is decided about the whole fleet: whether it is `paused`, when (RFC 3339), by whom."""

    paused: bool = False
    at: str = ""
    who: str = ""

    def why_paused(self) -> str:
        """Return that no new jobs are given out, and the remedy; empty when they are."""
        if not self.paused:
            return ""
        at = moment(self.at)
        return f"the fleet was paused by {self.who} at {at}; `fleet pause --off` lifts it"


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
class Revocation:
    """A host's certificate was taken back: when (RFC 3339), and by whom."""

    at: str
    who: str

    def reason(self, host: str) -> str:
        """Return why the host is given no jobs, with the remedy."""
        again = f"`fleet enroll {host} --replace` lets it in again"
        return f"its certificate was revoked by {self.who} at {moment(self.at)}; {again}"


@dataclass(frozen=True, slots=True)
class StoryFilter:
    """Which part of the ledger's story is wanted; `after` is a place in events and in actions."""

    since: str | None = None
    job_id: str | None = None
    host: str | None = None
    who: str | None = None
    after: tuple[int, int] = (0, 0)
    limit: int = 200


@dataclass(frozen=True, slots=True)
class AttemptFilter:
    """Which ended attempts are wanted, newest first; see `ledger.attempts`.

    `since` is RFC 3339; `before` is a place in the table of events, none for its end, as is
    `after`, from 0; `ends` are the ways to end, all when there is none.
    """

    since: str | None = None
    before: int | None = None
    ends: tuple[str, ...] = ()
    limit: int = 1000
    after: int = 0


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


Record = HostRecord | FleetRecord | HostForgotten | Action | BundleKept | BundlesFiled
