"""A coordinator as it runs in a simulation: the real shell, a ledger in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from broker.errors import StorageError
from broker.protocol.link_events import Outgoing
from broker.system.files import Disk
from coordinator.core.core_settings import DAY_S, CoreSettings
from coordinator.core.effects import JournalRead, ManifestRead, ManifestRefused
from coordinator.jobs.jobs import Change
from coordinator.jobs.plan_entries import Plan
from coordinator.jobs.records import Record
from coordinator.ledger.ledger import Ledger
from coordinator.manifest.problems import ManifestError, Problem
from coordinator.service.performer import Retention
from coordinator.service.performer import Surroundings as CoordinatorSurroundings
from coordinator.service.shell import Shell as CoordinatorShell
from coordinator.store.joblog import JobLogs
from coordinator.store.store import Store

from .network import Link
from .nodes import ROOT, STALE_S, TOPICS, Machine, Node

if TYPE_CHECKING:
    from .run import Run

BROKEN = (Problem("plan.toml", "", "", "broken"),)


class SimLedger(Ledger):
    """The real ledger, in memory; the process may end before a commit or after it."""

    def __init__(self, node: CoordinatorNode) -> None:
        super().__init__(":memory:")
        self._node = node

    def commit(self, changes: Sequence[Change | Record]) -> None:
        """Commit, and have the checker look."""
        machine = self._node.machine
        if not changes:
            return
        machine.before("commit")
        if machine.disk.trouble:
            raise StorageError("ledger: the disk refuses")
        super().commit(changes)
        self._node.run.checker.committed(changes)
        self._node.run.given_back.committed(changes)
        machine.before("committed")

    def keep(self, record: Record) -> None:
        """Take what was there before the run."""
        super().commit([record])

    def close(self) -> None:
        """Stay: what is committed is on the disk."""

    def end(self) -> None:
        """The run is over."""
        super().close()


class CoordinatorNode(Node):
    """The coordinator."""

    role = "coordinator"

    def __init__(self, run: Run, machine: Machine) -> None:
        super().__init__(run, machine, "fleet-coordinator")
        self.ledger = SimLedger(self)
        self.shell: CoordinatorShell | None = None
        self.store: Store | None = None
        self._writes: deque[Callable[[], None]] = deque()  # of its writing thread, in order
        self.manifest: Plan | None = run.scenario.plan()
        self.crl = ""  # in the CA's folder

    def _write(self, call: Callable[[], None]) -> None:
        """Have it run on the writing thread, after what was given to that before."""

        def next_one() -> None:
            self._writes.popleft()()

        self._writes.append(call)
        self.background(next_one)

    def begin(self) -> None:
        """As `coordinator.service.Service` does."""
        disk: Disk = self.machine.disk
        self._writes.clear()
        now = self.machine.now()
        self.store = Store(ROOT, disk)
        logs = JobLogs(ROOT / "logs", 100_000, disk)
        new_id = self.run.id_maker("c")
        around = CoordinatorSurroundings(
            topics=TOPICS, disk=disk, rng=self.machine.rng, new_id=new_id, publish=self.publish,
            put=self.put, background=self.background, writing=self._write,
            read_plan=self._read_plan,
        )  # fmt: skip
        settings = CoreSettings.model_construct(
            instance=new_id(), boot_id=self.machine.boot_id, manifest="plan.toml",
            stale_after_s=STALE_S, claim_timeout_s=30.0, host_timeout_s=100.0, window_bytes=4096,
            sleep_grace_s=240.0, max_attempts=2, receipt_key=b"a key",
            keep_unreferenced_days=50 / DAY_S, max_fetches=1,
        )  # fmt: skip
        keep = Retention(events_s=100.0, events_per_job=4, parts_s=300.0)
        self.shell = CoordinatorShell(settings, around, self.ledger, self.store, logs, now, keep)
        read: list[Any] = [
            ManifestRefused(BROKEN) if self.manifest is None else ManifestRead(self.manifest)
        ]
        read += [JournalRead((), self.crl)] if self.crl else []
        self.shell.turn(read, now)
        self.link = Link(
            self.run.broker, self.client_id, TOPICS.for_coordinator(),
            self.from_link(self.generation), self.shell.will, new_id, self.machine.rng,
        )  # fmt: skip
        self.link.start()
        self.wake_at_deadline()

    def turn(self, events: Sequence[Any]) -> None:
        assert self.shell is not None
        self.run.given_back.heard(events)
        self.shell.turn(events, self.machine.now())

    def publish(self, *messages: Outgoing) -> bool:
        self.run.given_back.said(messages)
        return super().publish(*messages)

    def next_deadline(self) -> float | None:
        return self.shell.next_deadline() if self.shell else None

    def _read_plan(self, _announced: object) -> Plan:
        if self.manifest is None:
            raise ManifestError(BROKEN)
        return self.manifest
