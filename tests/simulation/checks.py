"""What must hold after every step, and what must hold in the end."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from broker.protocol.messages import Failed, Finished
from broker.protocol.reasons import Reason
from coordinator.core.host_views import explain
from coordinator.core.successors import unmet
from coordinator.jobs.jobs import Change, Job
from coordinator.jobs.reason_words import all_words
from coordinator.jobs.reasons import wait
from coordinator.jobs.records import Action, FleetRecord, HostRecord, Record, RequestKey
from coordinator.jobs.states import FINAL, Event, JobState
from coordinator.scheduler.rules import HostView
from tests.harness.replay import contradiction

from . import links
from .trainer_checks import GIVEN_BACK_S, GRACE_S, LOOK_S, SLACK_S, TrainerChecks, Violation

if TYPE_CHECKING:
    from .agentnode import AgentNode
    from .run import Run


def _is_by_command(change: Change) -> bool:
    """Whether it stands for a command of its own, other than a reload, and beside its answer."""
    if change.event in {Event.ADDED, Event.ADOPTED}:
        before = change.before
        return change.after.submitted_by is not None and (before is None or not before.submitted_by)
    return change.event in {Event.CANCELLED, Event.REQUEUED}


def _moves(action: Action) -> int:
    """Return how many jobs a command has moved, by its answer."""
    data: Any = action.answer.data if action.answer and action.outcome == "done" else None
    match action.action:
        case "cancel" | "requeue":
            rows = data.get("jobs") if data else None  # of several
            return sum(row["ok"] for row in rows) if rows else int(action.outcome == "done")
        case "run":
            return int(bool(data and data["added"]))
    return 0


class Checker(TrainerChecks):
    """Watches one run. Raises `Violation` at the step that breaks a rule."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._bundles: dict[tuple[str, str, int], str] = {}
        self._promises: dict[tuple[str, str, int], str] = {}
        self.completions = 0
        self.completed: dict[str, set[str | None]] = {}  # what each job has ever made
        self.hosts: dict[str, HostRecord] = {}
        self._barred: dict[str, str] = {}  # host, or "" for the whole fleet, and why
        self._answered: set[RequestKey | None] = set()

    def committed(self, changes: Sequence[Change | Record]) -> None:
        """The ledger has taken these changes, in one commit."""
        for change in changes:
            if isinstance(change, Change):
                self._one(change)
        barred = self._barred
        for change in changes:
            if isinstance(change, HostRecord | FleetRecord):
                self._remember(change)
        self._is_allowed([one for one in changes if isinstance(one, Change)], barred)
        self._once([one for one in changes if isinstance(one, Action) and one.answer], changes)

    def _remember(self, record: HostRecord | FleetRecord) -> None:
        name = record.host if isinstance(record, HostRecord) else ""
        why = all_words(record.restraints())
        self._barred = {**{k: v for k, v in self._barred.items() if k != name}}
        if why:
            self._barred[name] = why
        if isinstance(record, HostRecord):
            self.hosts[name] = record
            if record.gives_back():
                self._expect_given_back(record)

    def _is_allowed(self, changes: Sequence[Change], before: dict[str, str]) -> None:
        """A host that was barred before this commit and is so after it is given nothing in it."""
        for change in changes:
            for name in ("", change.after.host or "-"):
                is_barred = name in before and name in self._barred
                if change.event is Event.ASSIGNED and is_barred:
                    raise Violation(
                        "barred hosts are given nothing",
                        f"{change.after.spec.name} on {change.after.host}: {before[name]}",
                        change.after.job_id,
                    )

    def _expect_given_back(self, record: HostRecord) -> None:
        """If nothing else happens meanwhile, what runs there now does not run for long."""
        run = self._run
        if run.broker.cut_off:
            return
        struck, generation = run.struck, run.coordinator.generation
        nodes = [(one, one.generation) for one in run.agents if one.host.name == record.host]
        children = [child for one, _ in nodes for child in one.machine.children.values()]

        def look() -> None:
            calm = run.struck == struck and run.coordinator.generation == generation
            same = self.hosts.get(record.host) == record
            there = all(one.up and one.generation == was for one, was in nodes)
            left = [child for child in children if child.alive]
            if calm and same and there and left:
                raise Violation(
                    "what is to be given back is given back",
                    f"attempt {left[0].attempt} still runs on {record.host}", left[0].job_id,
                )  # fmt: skip

        run.timeline.after(GIVEN_BACK_S, look)

    def given_back(self) -> None:
        """In the quiet: what a host had to give back is not there any more."""
        for node in self._run.agents:
            record = self.hosts.get(node.host.name)
            if record is None or not record.gives_back() or not node.up or node.asleep:
                continue
            for child in node.machine.children.values():
                raise Violation(
                    "what is to be given back is given back",
                    f"attempt {child.attempt} still runs on {node.machine.name}", child.job_id,
                )  # fmt: skip

    def owner_came(self, node: AgentNode, how: str) -> None:
        """Somebody wants the machine: nothing runs there for long, and nothing begins."""
        if how != "snooze" or node.asleep:
            return  # whether that counts is for the manifest's rules; who sleeps sees nothing
        generation, naps, since_s = node.generation, node.naps, node.machine.wanted[how]

        def look() -> None:
            undisturbed = generation == node.generation and naps == node.naps and node.up
            still = node.machine.wanted.get(how) == since_s
            if undisturbed and still and node.machine.children:
                child = next(iter(node.machine.children.values()))
                raise Violation(
                    "the owner is obeyed",
                    f"attempt {child.attempt} runs on {node.machine.name}", child.job_id,
                )  # fmt: skip

        for after_s in (LOOK_S + 2 * GRACE_S + SLACK_S, 100.0, 150.0):
            self._run.timeline.after(after_s, look)

    def _once(self, actions: Sequence[Action], changes: Sequence[Change | Record]) -> None:
        """What an operator has moved stands beside the answer; a request is answered once."""
        moved = sum(isinstance(one, Change) and _is_by_command(one) for one in changes)
        done = sum(map(_moves, actions))
        if moved != done:
            raise Violation("commands once", f"{done} answers in a commit with {moved} moves")
        for one in actions:
            if one.key in self._answered:
                raise Violation("commands once", f"{one.action} {one.key} is done a second time")
            self._answered.add(one.key)

    def _one(self, change: Change) -> None:
        before, after, job_id = change.before, change.after, change.after.job_id
        name = after.spec.name
        if before != self.rows.get(job_id):
            raise Violation("mirror", f"{name} moved from what the ledger does not have", job_id)
        if before is not None and before.state is not after.state and before.state in FINAL:
            by_operator = change.event is Event.REQUEUED and change.who.startswith("operator:")
            if not by_operator:
                raise Violation(
                    "final states stay", f"{name}: {before.state} to {after.state} by {change.who}",
                    job_id,
                )  # fmt: skip
        links.check_assigned(self, change)
        grown = before is not None and after.attempt == before.attempt + 1
        if change.event is Event.ASSIGNED and not grown:
            raise Violation("attempts grow", f"{name}: assigned as attempt {after.attempt}", job_id)
        if before is not None and after.attempt < before.attempt:
            raise Violation("attempts grow", f"{name}: attempt {after.attempt}", job_id)
        if before and change.event in {Event.CANCELLED, Event.REQUEUED}:
            self._given_up[job_id] = before.attempt
        self.rows[job_id] = after
        self._ran(change)
        if change.event is Event.RELEASED:
            self.released.add((after.job_id, change.attempt))
        self._offered(change)
        if after.state is JobState.COMPLETED and change.event is Event.COMPLETED:
            self.completions += 1
            self.completed.setdefault(job_id, set()).add(after.artifact_id)
            self._stored(after)

    def _stored(self, job: Job) -> None:
        coordinator = self._run.coordinator
        kept = coordinator.ledger.bundle(job.artifact_id or "")
        path = coordinator.store.path_of(job.artifact_id or "") if coordinator.store else None
        data = coordinator.machine.disk.bytes_of(path) if path else kept and kept.data
        if data is None or hashlib.sha256(data).hexdigest() != job.artifact_id:
            raise Violation(
                "completed means stored", f"{job.spec.name} has no whole artifact", job.job_id
            )

    def _offered(self, change: Change) -> None:
        """A host that has lost a trainer says so with what that had left off at, if there is any.

        A host of which two agents use the name may be another machine.
        """
        role, _, host = change.who.partition(":")
        if change.event is not Event.LOST or role != "host" or host in self._run.twinned:
            return
        job = change.after
        for node in self._run.agents:
            here = node.host.name == host and node.up and not node.machine.ailing
            if here and job.host is not None and node.checkpoints.was_at(job.job_id, job.attempt):
                raise Violation(
                    "no work is thrown away",
                    f"{host} has a checkpoint of attempt {job.attempt} of {job.spec.name}",
                    job.job_id,
                )

    def bundled(self, node: AgentNode, job_id: str, attempt: int, artifact_id: str) -> None:
        """A training is finished, and its result is on a disk."""
        self._bundles[(node.machine.name, job_id, attempt)] = artifact_id

    def cleared(self, node: AgentNode, job_id: str, attempt: int) -> None:
        """An agent throws its copy of a result away."""
        artifact_id = self._bundles.pop((node.machine.name, job_id, attempt), None)
        if artifact_id is None or self.is_stored(artifact_id):
            return
        job = self.rows.get(job_id)
        if job is None or job.attempt > attempt or self._given_up.get(job_id, 0) >= attempt:
            return
        if job.state in {JobState.COMPLETED, JobState.CANCELLED}:
            return
        assert node.spool is not None
        data = node.machine.disk.bytes_of(node.spool.bundle_path(artifact_id))
        if data is None or hashlib.sha256(data).hexdigest() != artifact_id:
            return  # the disk has spoilt it
        raise Violation(
            "no work is thrown away",
            f"attempt {attempt} of {job.spec.name}, which is {job.state}, was finished", job_id,
        )  # fmt: skip

    def promised(self, node: AgentNode, report: Finished) -> None:
        """An agent has said that a training is finished: it must not forget that."""
        key = (node.machine.name, report.job_id, report.attempt)
        if key in self._bundles:
            self._promises[key] = report.artifact_id

    def remembers(self, node: AgentNode, spooled: Sequence[Finished | Failed]) -> None:
        """An agent has been started: it owes what it has said that it has."""
        known = {(report.job_id, report.attempt) for report in spooled}
        for key in [key for key in self._promises if key[0] == node.machine.name]:
            _, job_id, attempt = key
            if key in self._bundles and (job_id, attempt) not in known and not node.machine.ailing:
                raise Violation(
                    "no work is thrown away",
                    f"{node.machine.name} has forgotten that it has finished "
                    f"{self._run.name_of(job_id)}", job_id,
                )  # fmt: skip
            del self._promises[key]

    def is_stored(self, artifact_id: str) -> bool:
        """Whether an artifact is a file of the store, or kept in the ledger."""
        store, ledger = self._run.coordinator.store, self._run.coordinator.ledger
        filed = store is not None and store.has(artifact_id)
        return filed or ledger.bundle(artifact_id) is not None

    def settled(self) -> bool:
        """Whether there is nothing left to be done: asked in the quiet after the faults."""
        run = self._run
        shell = run.coordinator.shell
        if not run.coordinator.up or shell is None or not all(node.up for node in run.agents):
            return False
        world, now = shell.core.world, run.coordinator.machine.now()
        if world.downloads or run.coordinator.ledger.bundle_sizes():
            return False
        if any(
            node.shell is None
            or node.shell.core.state.owed
            or node.shell.core.state.runs
            or node.shell.waits_for_disk()
            or node.working  # a bundle of what was cancelled meanwhile is made, and deleted
            for node in run.agents
        ):
            return False
        here = {node.host.name for node in run.agents}
        for job in world.book.all():
            if job.state is JobState.PENDING:
                behind = not job.in_plan or any(unmet(world, job))
                if not behind and not self._explained(explain(world, job, now), here):
                    return False
            elif job.state not in FINAL:
                return False
        return True

    @staticmethod
    def _explained(found: list[tuple[HostView, tuple[Reason, ...]]], here: set[str]) -> bool:
        """Whether `why` gives, for each host that is there, a reason that will not pass."""
        for_good = {view.host for view, reasons in found if not wait(reasons).passes}
        return here <= for_good

    def finally_(self) -> None:
        """What must hold in the end."""
        if not self.settled():
            self._tell_unsettled()
        self._ledger_agrees()
        for job in self.rows.values():
            if job.state is JobState.COMPLETED:
                self._stored(job)
        self._nothing_left_over()

    def _tell_unsettled(self) -> None:
        run = self._run
        stuck = [
            f"{job.spec.name} is {job.state} (attempt {job.attempt}, {job.host})"
            for job in self.rows.values() if job.state not in FINAL
        ]  # fmt: skip
        owed = [
            f"{node.machine.name} owes {held.report.type} of {run.name_of(job_id)}"
            for node in run.agents if node.shell is not None
            for job_id, held in node.shell.core.state.owed.items()
        ]  # fmt: skip
        down = [node.client_id for node in (run.coordinator, *run.agents) if not node.up]
        stuck += self._why()
        first = next((j.job_id for j in self.rows.values() if j.state not in FINAL), "")
        raise Violation("every job ends", "; ".join([*stuck, *owed, *down]) or "?", first)

    def _why(self) -> list[str]:
        run = self._run
        if run.coordinator.shell is None:
            return []
        world, now = run.coordinator.shell.core.world, run.coordinator.machine.now()
        return [
            f"{job.spec.name} on {view.host}: {all_words(reasons) or 'could run'}"
            for job in world.book.in_state(JobState.PENDING)[:3]
            for view, reasons in explain(world, job, now)
        ]

    def _ledger_agrees(self) -> None:
        ledger = self._run.coordinator.ledger
        if ledger.load() != self.rows:
            raise Violation("ledger", "its rows are not what was committed")
        for job_id, job in self.rows.items():
            wrong = contradiction(job, ledger.events(job_id, limit=100_000))
            if wrong:
                raise Violation("ledger", f"{job.spec.name}: {wrong}", job_id)

    def _nothing_left_over(self) -> None:
        run = self._run
        assert run.coordinator.shell is not None
        world = run.coordinator.shell.core.world
        # An upload whose sender is gone for good is given up after an hour.
        left_over = [*world.claims, *world.downloads]
        if left_over:
            raise Violation("nothing is left over", f"in the coordinator's memory: {left_over}")
        for node in run.agents:
            assert node.spool is not None
            left = node.machine.disk.glob(node.spool.bundle_path("x").parent, "*")
            if left:
                raise Violation("nothing is left over", f"{node.machine.name}: {left[0].name}")
