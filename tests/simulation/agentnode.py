"""An agent as it runs in a simulation: the real shell, its trainers played."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.core.core_settings import CoreSettings as AgentSettings
from agent.core.effects import (
    Look,
    Looked,
    Probed,
    Shutdown,
    Snooze,
    StartTrainer,
    TrainerExited,
    TrainerLine,
    Vitals,
)
from agent.core.reactor import Core as AgentCore
from agent.programs.parts import Parts
from agent.service.shell import Shell as AgentShell
from agent.service.shell import Surroundings as AgentSurroundings
from agent.spool.checkpoints import Checkpoints
from agent.spool.spool import Spool
from broker.protocol.link_events import Outgoing
from broker.protocol.messages import (
    MAX_SMALL_BYTES,
    Assign,
    Capability,
    Finished,
    Gpu,
    TrainerInfo,
    decode_reports,
)
from broker.system.bundle import BundleInfo
from broker.system.files import read, write_atomically

from . import datasets, links, programs
from .network import Link
from .nodes import HEARTBEAT_S, ROOT, TOPICS, Machine, Node
from .scenario import ONE_GO
from .trainer_checks import GRACE_S, LOOK_S

if TYPE_CHECKING:
    from .run import Run
    from .scenario import HostSpec


GIB: Final = 1024**3
# The share of trainers that, asked to end, are where they began: anew, and at a checkpoint.
NO_FURTHER: Final = (0.2, 0.6)
TRAINERS: Final = {
    "gbt": TrainerInfo(hyper_schema={}),
    ONE_GO: TrainerInfo(hyper_schema={}, resumable=False),
}


@dataclass(slots=True)
class SimTrainer:
    """A trainer's process."""

    machine: Machine
    node: AgentNode
    generation: int
    job_id: str
    attempt: int
    trainer_pid: int
    deaf: bool
    files: Path
    begun_s: float
    gets_further: bool
    skipped_s: float = 0.0
    alive: bool = True

    def send_signal(self, *, kill: bool) -> None:
        """As a system does; one that can resume leaves a checkpoint when it is asked to end."""
        if kill:
            self.exits(-9)
        elif not self.deaf:
            delay_s = self.machine.rng.random()
            self.machine.run.timeline.after(delay_s, lambda: self.node.guarded(self._leaves_off))

    def _leaves_off(self) -> None:
        if not self.alive:
            return
        if not self.machine.run.job(self.job_id).resumable:
            self.exits(-15)
            return
        if not self.gets_further:
            self.machine.run.faults["(left off where it began)"] += 1
            self.exits(75)
            return
        disk, begun_s = self.machine.disk, self.begun_s
        done_s = self.machine.run.timeline.now_s - begun_s + self.skipped_s
        state = f"{self.job_id} {self.attempt} {done_s}".ljust(1500).encode()
        self.machine.run.checker.left_off(self, state)
        try:
            write_atomically(disk, self.files / "state", state)
            disk.sync_folder(self.files)
        except OSError:
            self.exits(-15)
        else:
            self.exits(75)

    def wait(self, timeout_s: float) -> None:
        """Nothing is waited for here."""

    def exits(self, code: int) -> None:
        """End, and tell the agent that started it, if it is still there."""
        if self.alive:
            self.alive = False
            self.machine.run.checker.trainer_ended(self)
            self.machine.children.pop(self.trainer_pid, None)
            self.tell(TrainerExited(self.job_id, self.attempt, code))

    def says(self, event: dict[str, Any]) -> None:
        """A line of output."""
        if self.alive:
            self.tell(TrainerLine(self.job_id, self.attempt, json.dumps(event)))

    def tell(self, event: object) -> None:
        if self.node.generation == self.generation and self.node.up:
            self.node.put(event)


class SimSpool(Spool):
    """The real spool; the checker is told when work is thrown away."""

    node: AgentNode

    def clear(self, job_id: str, attempt: int, artifact_id: str | None = None) -> None:
        """Ask whether that is right, then do it."""
        self.node.run.checker.cleared(self.node, job_id, attempt)
        super().clear(job_id, attempt, artifact_id)


class AgentNode(Node):
    """An agent, and the trainers on its machine."""

    role = "agent"

    def __init__(self, run: Run, machine: Machine, host: HostSpec) -> None:
        super().__init__(run, machine, f"fleet-{host.name}")
        self.host = host
        self.shell: AgentShell | None = None
        self.spool: SimSpool | None = None

    def begin(self) -> None:
        """As `agent.service.Service` does."""
        machine, now = self.machine, self.machine.now()
        self.spool = SimSpool(ROOT, machine.disk, self._bundle)
        self.spool.node = self
        self.checkpoints = Checkpoints(
            ROOT, machine.disk, self._bundle_checkpoint, self._unpack_checkpoint
        )
        for child in list(machine.children.values()):
            child.exits(-9)  # the orphans of an earlier agent, by their identity
        left = self.spool.take_over(self.checkpoints.was_at)
        self.run.checker.remembers(self, left.reports)
        new_id = self.run.id_maker(self.host.name)
        settings = AgentSettings.model_construct(
            host=self.host.name, instance=new_id(), boot_id=machine.boot_id,
            heartbeat_s=HEARTBEAT_S, stop_grace_s=GRACE_S, leave_grace_s=5.0, chunk_bytes=1024,
            look_s=LOOK_S, busy_grace_s=10.0,
        )  # fmt: skip
        core = AgentCore(settings, TOPICS, left, rng=machine.rng, new_id=new_id)
        core.begin(now)
        around = AgentSurroundings(
            topics=TOPICS, publish=self.publish, put=self.put, background=self.background,
            measure=self._measure, look=self._look, start=self._start_trainer,
            suspended_s=lambda: machine.suspended_s,
        )  # fmt: skip
        self.programs = programs.of_host(machine, self.host)
        self.parts = Parts(
            self.checkpoints, self.programs, datasets.of_host(machine),
            programs.parcels(machine, "inputs"),
        )  # fmt: skip
        self.shell = AgentShell(core, around, self.spool, self.parts)
        self.link = Link(
            self.run.broker, self.client_id, TOPICS.for_agent(self.host.name),
            self.from_link(self.generation), self.shell.will, new_id, machine.rng,
        )  # fmt: skip
        self.link.start()
        generation = self.generation

        def probed() -> None:
            if generation == self.generation and self.up:
                self.put(Probed(self._capability()))

        self.run.timeline.after(0.5 + machine.rng.random(), probed)
        self.wake_at_deadline()

    def turn(self, events: Sequence[Any]) -> None:
        assert self.shell is not None
        self.run.checker.heard(self, events)
        self.shell.turn(events, self.machine.now())
        if self.shell.left:
            for child in list(self.machine.children.values()):
                child.exits(-9)
            if self.link is not None:
                self.link.stop(self.shell.goodbye())
            self.run.note(f"{self.client_id}: left")
            self.end(self.down_s)

    def publish(self, *messages: Outgoing) -> bool:
        for message in messages:
            if message.topic.endswith("/job/response"):
                for report in decode_reports(message.payload):
                    if isinstance(report, Finished):
                        self.run.checker.promised(self, report)
        return super().publish(*messages)

    def next_deadline(self) -> float | None:
        return self.shell.next_deadline() if self.shell else None

    def leave(self, down_s: float) -> None:
        """Ask it to end in order."""
        self.down_s = down_s
        self.put(Shutdown())

    def on_crash(self) -> None:
        """Trainers go with the power; whether with the agent depends on the system."""
        for child in list(self.machine.children.values()):
            if self.power or self.host.dies_with_agent:
                child.exits(-9)

    def _capability(self) -> Capability:
        host = self.host
        gpus = (Gpu(index=0, name="card", vram_total_bytes=8 * GIB),) if host.cuda else ()
        return Capability(
            session="-", instance="-", os="o", arch="a", python="3", physical_cores=4,
            ram_total_bytes=int(host.ram_gib * GIB), ram_available_bytes=int(host.ram_gib * GIB),
            gpus=gpus, trainers=TRAINERS, data_id="d", slots=host.slots,
            programs=self.programs.allowed(), holdings=self.parts.held(),
        )  # fmt: skip

    def _measure(self, gpus: tuple[Gpu, ...]) -> None:
        def measured() -> None:
            slept_s = self.machine.suspended_s
            ram_bytes, here = int(self.host.ram_gib * GIB), self.parts.held()
            self.put(Vitals(ram_bytes, "d", 10.0, 1.0, gpus, slept_s, holdings=here))

        if gpus:
            self.background(measured)  # a driver may take its time
        else:
            measured()

    def _look(self, wanted: Look) -> None:
        self.background(lambda: self.put(self._seen(idle=wanted.idle)))

    def _seen(self, *, idle: bool) -> Looked:
        machine = self.machine
        local = datetime.fromtimestamp(machine.wall_s(), UTC).replace(tzinfo=None)
        snooze = Snooze(now=True) if "snooze" in machine.wanted else None
        since_s = 0.0 if "keys" in machine.wanted else 1000.0
        return Looked(local, snooze, since_s if idle else None)

    def woke(self) -> None:
        self.run.checker.woke(self)

    def _start_trainer(self, effect: StartTrainer) -> tuple[SimTrainer, bool]:
        machine = self.machine
        machine.before("start")
        assign = effect.assign
        assert self.spool is not None
        programs.check_started(machine, self.host, assign)
        links.check_started(self.run.checker, machine, assign)
        datasets.check_read(machine, assign)
        machine.disk.make_folder(self.spool.work(assign.job_id, assign.attempt))
        key = (assign.job_id, assign.attempt)
        resumes = self.checkpoints.begin(*key, assign.void_attempt)
        files = self.checkpoints.files(assign.job_id)
        job = self.run.job(assign.job_id)
        pid, after = self.run.next_pid(), self.run.timeline.after
        # Of their own stream of random numbers, so that no other draw depends on it.
        which = f"{machine.name} {assign.job_id} {assign.attempt} {self.run.scenario.seed}"
        gets_further = random.Random(f"progress {which}").random() >= NO_FURTHER[resumes]
        child = SimTrainer(
            machine, self, self.generation, assign.job_id, assign.attempt, pid,
            job.behaviour == "deaf", files, self.run.timeline.now_s, gets_further,
        )  # fmt: skip
        machine.children[pid] = child
        self.run.checker.trainer_started(self, child)
        left_off = machine.disk.bytes_of(files / "state") if resumes else None
        if left_off is not None:  # it may have been cut off while it wrote the first one
            child.skipped_s = self.run.checker.resumed(self, child, left_off)
        if job.behaviour == "hangs":
            return child, resumes
        half = {"event": "progress", "epoch": 5, "epochs": 10, "train_loss": 0.5}
        left_s = max(0.1, job.duration_s - child.skipped_s)
        after(left_s / 2, lambda: child.says(half))
        behaviour = "crashes" if self.host.sick else job.behaviour
        if behaviour == "flaky":
            behaviour = "crashes" if assign.attempt == 1 else "ok"
        after(left_s, lambda: self._end_of(child, assign, behaviour))
        return child, resumes

    def _end_of(self, child: SimTrainer, assign: Assign, behaviour: str) -> None:
        if child.alive:
            datasets.check_read(child.machine, assign)
        if behaviour == "fails":
            child.says({"event": "error", "kind": "data", "message": "a column is missing"})
            child.exits(2)
        elif behaviour == "crashes":
            child.exits(1)
        else:
            child.says({"event": "result", "metrics": {"auroc": 0.5}})
            child.exits(0)

    def _bundle(self, folder: Path, out: Path) -> BundleInfo:
        job_id, _, attempt = folder.parent.name.rpartition(".")
        data = self.run.result_of(job_id, int(attempt))
        making = out.with_name(out.name + ".part")
        disk = self.machine.disk
        with disk.open(making, "wb") as file:
            file.write(data)
            if len(data) > MAX_SMALL_BYTES:
                disk.sync(file)
        disk.replace(making, out)
        artifact_id = hashlib.sha256(data).hexdigest()
        self.run.checker.bundled(self, job_id, int(attempt), artifact_id)
        return BundleInfo(artifact_id, len(data))

    def _bundle_checkpoint(self, folder: Path, out: Path) -> BundleInfo:
        disk = self.machine.disk
        data = read(disk, folder / "state")
        write_atomically(disk, out, data)
        return BundleInfo(hashlib.sha256(data).hexdigest(), len(data))

    def _unpack_checkpoint(self, bundle: Path, into: Path) -> None:
        disk = self.machine.disk
        disk.make_folder(into)
        write_atomically(disk, into / "state", read(disk, bundle))
