"""What must hold after every step, and what must hold in the end."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from broker.protocol.events import Incoming
from broker.protocol.messages import AGENT_REQUEST, Cancel, Failed, Finished, decode
from coordinator.core.host_views import explain
from coordinator.jobs.jobs import Change, Job
from coordinator.jobs.records import Action, FleetRecord, HostRecord, Record, RequestKey
from coordinator.jobs.states import FINAL, Event, JobState
from coordinator.ledger.replay import contradiction
from coordinator.scheduler.rules import HostView, Reason

if TYPE_CHECKING:
    from .agentnode import AgentNode, SimTrainer
    from .run import Run

GRACE_S: Final = 5.0  # after which a trainer that was asked to end is ended
SLACK_S: Final = 3.0
LOOK_S: Final = 15.0
GIVEN_BACK_S: Final = 100.0  # links are down for a minute at most


class Violation(AssertionError):  # noqa: N818 - what it is called
    """The fleet has broken a promise. `rule` names it, whatever the particulars."""

    def __init__(self, rule: str, text: str, job_id: str = "") -> None:
        """Say which rule, how, and about which job."""
        super().__init__(rule, text, job_id)
        self.rule = rule
        self.text = text
        self.job_id = job_id

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


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


class Checker:
    """Watches one run. Raises `Violation` at the step that breaks a rule."""

    def __init__(self, run: Run) -> None:
        """Nothing has happened yet."""
        self._run = run
        self.rows: dict[str, Job] = {}
        self._holders: dict[tuple[str, int], str] = {}
        self._given_up: dict[str, int] = {}  # job -> newest attempt that an operator has voided
        self._ended: dict[tuple[str, int], tuple[SimTrainer, int, float]] = {}
        self._bundles: dict[tuple[str, str, int], str] = {}
        self._promises: dict[tuple[str, str, int], str] = {}
        self._checkpoints: dict[bytes, SimTrainer] = {}
        self._running: dict[str, list[SimTrainer]] = {}
        self.completions = 0
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
        why = (
            record.why_paused()
            if isinstance(record, FleetRecord)
            else "; ".join(record.barred()) or record.snoozed()
        )
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
        grown = before is not None and after.attempt == before.attempt + 1
        if change.event is Event.ASSIGNED and not grown:
            raise Violation("attempts grow", f"{name}: assigned as attempt {after.attempt}", job_id)
        if before is not None and after.attempt < before.attempt:
            raise Violation("attempts grow", f"{name}: attempt {after.attempt}", job_id)
        if before and change.event in {Event.CANCELLED, Event.REQUEUED}:
            self._given_up[job_id] = before.attempt
        self.rows[job_id] = after
        self._ran(change)
        self._offered(change)
        if after.state is JobState.COMPLETED and change.event is Event.COMPLETED:
            self.completions += 1
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

    def trainer_started(self, node: AgentNode, child: SimTrainer) -> None:
        """A trainer runs."""
        key = (child.job_id, child.attempt)
        holder = f"{node.machine.name}.{child.trainer_pid}"
        if key in self._holders:
            raise Violation(
                "one holder",
                f"attempt {child.attempt} runs on {holder}, after {self._holders[key]}",
                child.job_id,
            )
        self._holders[key] = holder
        for other in self._running.setdefault(child.job_id, []):
            self._at_once(other, child)
        self._running[child.job_id].append(child)

    def _at_once(self, other: SimTrainer, child: SimTrainer) -> None:
        """Two trainers of one job run at once only where somebody has wanted that.

        The job says so (`on_lost`) or its trainer cannot resume and the job does not say "stop", an
        operator has had it begun anew, or two agents use one name.
        A machine that sleeps runs nothing, and who has outlived its agent is found by the next one.
        """
        run = self._run
        job = run.job(child.job_id)
        wanted = (
            (job.spec.on_lost or ("stop" if job.resumable else "keep")) == "keep"
            or self._given_up.get(child.job_id, 0) >= min(other.attempt, child.attempt)
            or {other.node.host.name, child.node.host.name} & run.twinned
        )
        runs = all(one.generation == one.node.generation for one in (other, child))
        if other.alive and child.alive and runs and not other.node.asleep and not wanted:
            raise Violation(
                "one trainer at once",
                f"attempt {other.attempt} on {other.machine.name} and attempt {child.attempt} on "
                f"{child.machine.name}", child.job_id,
            )  # fmt: skip

    def woke(self, node: AgentNode) -> None:
        """A machine wakes up: what runs there has been given to others meanwhile, or is its own."""
        naps, children = node.naps, [*node.machine.children.values()]

        def look() -> None:
            if naps == node.naps and not node.asleep:
                for child in children:
                    for other in self._running.get(child.job_id, []):
                        if other is not child:
                            self._at_once(child, other)

        self._run.timeline.after(LOOK_S + GRACE_S + SLACK_S, look)

    def trainer_ended(self, child: SimTrainer) -> None:
        """A trainer runs no more."""
        self._running[child.job_id].remove(child)
        ran_s = self._run.timeline.now_s - child.begun_s
        self._ended[(child.job_id, child.attempt)] = (child, child.node.naps, ran_s)

    def _ran(self, change: Change) -> None:
        """What the ledger has as a trainer's time is that, however late its report has come.

        An agent whose machine sleeps hears late that its trainer has ended; a coordinator whose
        clock was set may believe less of what it is told after a restart.
        """
        key = (change.after.job_id, change.attempt)
        ended = self._ended.get(key)
        if change.event is not Event.COMPLETED and change.ran_s is None:
            return
        if ended is None or self._run.coordinator.machine.skew_s or ended[0].node.naps:
            return
        if change.ran_s is None or abs(change.ran_s - ended[2]) > SLACK_S:
            raise Violation(
                "what a trainer ran is told",
                f"attempt {key[1]} ran for {ended[2]:.1f} s, told is {change.ran_s}", key[0],
            )  # fmt: skip

    def left_off(self, child: SimTrainer, checkpoint: bytes) -> None:
        """A trainer leaves a checkpoint."""
        self._checkpoints[checkpoint] = child

    def resumed(self, node: AgentNode, child: SimTrainer, left_off: bytes) -> float:
        """A trainer goes on from a checkpoint; return how much of its work that saves, in s."""
        made = self._checkpoints.get(left_off)
        if made is None or made.job_id != child.job_id or made.attempt >= child.attempt:
            raise Violation(
                "checkpoints are the job's own",
                f"attempt {child.attempt} goes on from {left_off[:40]!r}",
                child.job_id,
            )
        if made.attempt <= self.rows[child.job_id].void_attempt < child.attempt:
            raise Violation("a requeue begins anew", f"from attempt {made.attempt}", child.job_id)
        done_s = left_off.split()[2]
        where = "here" if made.machine is node.machine else "elsewhere"
        self._run.faults[f"(gone on from a checkpoint made {where})"] += 1
        return float(done_s)

    def heard(self, node: AgentNode, events: Sequence[Any]) -> None:
        """An agent hears these; if it is told that an attempt is void, its trainer has to end."""
        for event in events:
            if isinstance(event, Incoming) and b'"cancel"' in event.payload[:60]:
                if event.retained or not event.topic.endswith("/job/request"):
                    continue
                request = decode(AGENT_REQUEST, event.payload)
                if isinstance(request, Cancel):
                    self._expect_end(node, request)

    def _expect_end(self, node: AgentNode, cancel: Cancel) -> None:
        generation, naps = node.generation, node.naps
        running = [
            child for child in node.machine.children.values()
            if child.job_id == cancel.job_id and child.attempt <= cancel.attempt
        ]  # fmt: skip

        def look() -> None:
            undisturbed = generation == node.generation and naps == node.naps
            if undisturbed and any(child.alive for child in running):
                raise Violation(
                    "void attempts end",
                    f"attempt {cancel.attempt} still runs on {node.machine.name}", cancel.job_id,
                )  # fmt: skip

        if running:
            self._run.timeline.after(GRACE_S + SLACK_S, look)

    def bundled(self, node: AgentNode, job_id: str, attempt: int, artifact_id: str) -> None:
        """A training is finished, and its result is on a disk."""
        self._bundles[(node.machine.name, job_id, attempt)] = artifact_id

    def cleared(self, node: AgentNode, job_id: str, attempt: int) -> None:
        """An agent throws its copy of a result away."""
        artifact_id = self._bundles.pop((node.machine.name, job_id, attempt), None)
        if artifact_id is None or self._is_stored(artifact_id):
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

    def _is_stored(self, artifact_id: str) -> bool:
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
        here = {node.host.name for node in run.agents}
        for job in world.book.all():
            if job.state is JobState.PENDING:
                if job.in_plan and not self._explained(explain(world, job, now), here):
                    return False
            elif job.state not in FINAL:
                return False
        return not any(
            node.shell is None
            or node.shell.core.state.owed
            or node.shell.core.state.runs
            or node.shell.waits_for_disk()
            for node in run.agents
        )

    @staticmethod
    def _explained(found: list[tuple[HostView, tuple[Reason, ...]]], here: set[str]) -> bool:
        """Whether `why` gives, for each host that is there, a reason that will not pass."""
        for_good = {
            view.host for view, reasons in found if any(not reason.passing for reason in reasons)
        }
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
            f"{job.spec.name} on {view.host}: {'; '.join(r.text for r in reasons) or 'could run'}"
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
