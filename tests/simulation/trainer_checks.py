"""What must hold of trainers: one per attempt, one at once, stopped in time, resumed rightly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from broker.protocol.link_events import Incoming
from broker.protocol.messages import AGENT_REQUEST, Cancel, decode
from coordinator.jobs.jobs import Change, Job
from coordinator.jobs.states import Event

if TYPE_CHECKING:
    from .agentnode import AgentNode, SimTrainer
    from .run import Run

GRACE_S: Final = 5.0  # after which a trainer that was asked to end is ended
SLACK_S: Final = 3.0
LOOK_S: Final = 30.0
GIVEN_BACK_S: Final = 100.0  # links are down for a minute at most


class Violation(AssertionError):  # noqa: N818 - what it is called
    """The fleet has broken a promise. `rule` names it, whatever the particulars."""

    def __init__(self, rule: str, text: str, job_id: str = "") -> None:
        super().__init__(rule, text, job_id)
        self.rule = rule
        self.text = text
        self.job_id = job_id

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


class TrainerChecks:
    """The rules about trainers; see `Checker`, which has the others."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.rows: dict[str, Job] = {}
        self._holders: dict[tuple[str, int], str] = {}
        self._given_up: dict[str, int] = {}  # job -> newest attempt that an operator has voided
        self._ended: dict[tuple[str, int], tuple[SimTrainer, int, float]] = {}
        self._checkpoints: dict[bytes, SimTrainer] = {}
        self._running: dict[str, list[SimTrainer]] = {}
        self.released: set[tuple[str, int]] = set()

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
        if key in self.released:
            text = f"attempt {child.attempt} was given back, and starts on {holder}"
            raise Violation("what was given back never starts", text, child.job_id)
        self._holders[key] = holder
        for other in self._running.setdefault(child.job_id, []):
            self._at_once(other, child)
        self._running[child.job_id].append(child)
        own = [
            one for one in node.machine.children.values()
            if one.alive and one.generation == node.generation
        ]  # fmt: skip
        if len(own) > node.host.slots:
            text = f"{len(own)} trainers on {node.machine.name}, which has {node.host.slots} slots"
            raise Violation("a slot for each trainer", text, child.job_id)
        if node.shell is not None:
            ahead = any(run.slot is None for run in node.shell.core.state.runs.values())
            self._run.faults["(given ahead)"] += ahead

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
        both_run = all(
            one.alive and one.generation == one.node.generation and not one.node.asleep
            for one in (other, child)
        )
        if both_run and not wanted:
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
