"""A client's copy of a fleet that hears messages, and the rows made of it."""

from __future__ import annotations

from typing import Any

from broker.clock import Now
from broker.protocol.messages import (
    Capability,
    Gpu,
    Heartbeat,
    HeldJob,
    JobRow,
    Progress,
    Status,
    encode,
)
from broker.protocol.topics import Topics
from coordinator.client.mirror import Mirror, Snapshot
from coordinator.client.rows import Delta, Row, Tables

GIB = 2**30


def job_id(name: str) -> str:
    """The id of a job of this name."""
    return name.encode().hex().ljust(64, "0")


def told_row(name: str, state: Any = "pending", **more: Any) -> JobRow:
    row = {
        "job_id": job_id(name), "name": name, "model": "gbt", "mode": "oracle", "state": state,
        "priority": 0, "attempt": 1, "host": None, "error": None, "artifact_id": None,
        "metrics": None, "created_at": "2026-01-02T12:00:00Z", "started_at": None,
        "finished_at": None, **more,
    }  # fmt: skip
    return JobRow.model_validate(row)


class Mirrored:
    """Hears what a test says; `now` is the time."""

    def __init__(self, wall_s: float = 1_000_000.0) -> None:
        self.topics, self.mirror, self.tables = Topics(), Mirror(), Tables()
        self.now = Now(1.0, wall_s)

    def passes(self, seconds: float) -> None:
        self.now = Now(self.now.mono_s + seconds, self.now.wall_s + seconds)

    def hears(self, topic: str, message: Any, *, retained: bool = False) -> bool:
        """A message comes, bytes as they are; whether it changes something."""
        payload = message if isinstance(message, bytes) else encode(message)
        return self.mirror.apply(self.topics.parse(topic), payload, self.now, retained=retained)

    def job(self, name: str, state: Any = "pending", *, retained: bool = False, **more: Any) -> str:
        """A job's row comes; its id."""
        made = told_row(name, state, **more)
        self.hears(self.topics.job(made.job_id), made, retained=retained)
        return made.job_id

    def status(
        self, host: str, state: Any = "online", reason: Any = "birth", session: str = "s"
    ) -> None:  # fmt: skip
        """A host's status comes, or the coordinator's."""
        status = Status(state=state, reason=reason, session=session, instance="i", boot_id="b")
        is_host = host != "coordinator"
        topic = self.topics.status(host) if is_host else self.topics.coordinator_status()
        self.hears(topic, status)

    def host(self, name: str, *held: str, gpus: tuple[Gpu, ...] = (), **more: Any) -> None:
        """A host says what it is, and sends a heartbeat."""
        self.status(name)
        self.hears(self.topics.capability(name), Capability(
            session="s", instance="i", os="Linux", arch="aarch64", python="3.12", physical_cores=4,
            ram_total_bytes=8 * GIB, ram_available_bytes=6 * GIB, gpus=gpus,
        ))  # fmt: skip
        self.beats(name, *held, gpus=gpus, **more)

    def beats(self, host: str, *held: str | HeldJob, **more: Any) -> None:
        """A heartbeat comes of a host that holds these jobs."""
        jobs = tuple(
            HeldJob(job_id=job_id(one), attempt=1, phase="running") if isinstance(one, str) else one
            for one in held
        )
        made = {"ram_available_bytes": 2 * GIB, "cpu_percent": 30.0} | more
        self.hears(self.topics.heartbeat(host), Heartbeat(
            session="s", instance="i", seq=1, jobs=jobs, **made,
        ))  # fmt: skip

    def progress(
        self,
        job: str,
        host: str,
        epoch: int,
        loss: float,
        eta_s: float | None = 125.0,
        attempt: int = 1,
    ) -> bool:
        """A trainer tells of an epoch; whether it is believed."""
        said = Progress(attempt=attempt, epoch=epoch, epochs=10, val_loss=loss, eta_s=eta_s)
        return self.hears(self.topics.progress(host, job_id(job)), said)

    @property
    def seen(self) -> Snapshot:
        return self.mirror.snapshot()

    def update(self) -> tuple[Delta, Delta]:
        """What has changed among the rows of jobs, and of hosts."""
        return self.tables.update(self.seen, self.now)

    def job_row(self, name: str) -> Row:
        """A job's row as it is now."""
        self.update()
        return self.tables.jobs.rows[job_id(name)]

    def host_row(self, name: str) -> Row:
        """A host's row as it is now."""
        self.update()
        return self.tables.hosts.rows[name]
