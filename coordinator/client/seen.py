"""What a client knows of the fleet at one moment: values that never change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker.protocol.messages import (
    Capability,
    Heartbeat,
    HeldJob,
    JobRow,
    Progress,
    Status,
    Summary,
)
from coordinator.jobs import job_progress
from coordinator.jobs.curve import Curve
from coordinator.jobs.in_words import words


@dataclass(frozen=True, slots=True)
class HostSeen:
    """One host. `row` is the coordinator's own view of it, as `fleet workers --json` has it.

    `heard_s` is when it was last heard of, on the monotonic clock of this client; none: never.
    `lost_s` is when its broker has said that it is lost; none: it has not.
    """

    name: str
    status: Status | None = None
    capability: Capability | None = None
    heartbeat: Heartbeat | None = None
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
    def refuses(self) -> str:
        """Why it takes no jobs now by its own word; empty when it does, or is away."""
        return self.heartbeat.refuses if self.heartbeat and self.online else ""


class Going(NamedTuple):
    """How far a job is that a host has.

    `progress` is what its trainer said last, `held` its host's heartbeat; none: nothing yet. By its
    trainer's word it ends at `ends_s` (seconds since the epoch); none where its host `is_away`.
    """

    progress: Progress | None = None
    held: HeldJob | None = None
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
    jobs: Mapping[str, JobRow]
    progress: Mapping[str, Progress]
    curves: Mapping[str, Curve]
    summary: Summary | None
    coordinator: Status | None
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
