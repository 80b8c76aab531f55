"""The agent's shell: feeds the core, starts and stops trainers, hands disk work to its thread.

It decides nothing itself, and whatever it does it does through its `Surroundings` and the spool
that it is given; so it runs in the simulation as it runs in the service.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from agent.core.effects import (
    BundleMade,
    Effect,
    Leave,
    Look,
    MakeBundle,
    Measure,
    ShellEvent,
    SignalTrainer,
    StartTrainer,
    Tick,
    TrainerExited,
    TrainerStarted,
    Warn,
)
from agent.core.reactor import Core
from agent.programs.parts import Parts
from agent.service.disk import DiskWork
from agent.spool.spool import Spool
from broker.clock import Now, earliest
from broker.errors import FleetError, plain
from broker.figures import how_ended
from broker.protocol.link_events import Connected, Disconnected, Incoming, Outgoing
from broker.protocol.messages import Gpu, Status, encode
from broker.protocol.topics import Topics

log = logging.getLogger("fleet.agent")

Event = Connected | Disconnected | Incoming | ShellEvent


class Child(Protocol):
    """A trainer's process."""

    @property
    def trainer_pid(self) -> int:
        """Its process id."""
        ...

    def send_signal(self, *, kill: bool) -> None:
        """Ask its process group to end (SIGTERM), or end it (SIGKILL)."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Wait for its end, and for the end of its output."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The shell's access to the outside.

    `publish` hands a message to the link. `put` brings a local event to the next turn. `background`
    runs a slow function elsewhere. `measure` measures the machine and brings `Vitals`. `look` asks
    whether the owner uses the machine and brings `Looked`. `start` starts a trainer, whose lines
    and exit come by `put`, and returns whether it resumes from a checkpoint; it raises OSError or
    `FleetError` if it cannot start. `suspended_s` is how long the machine has slept since it
    booted; it is asked at each turn, so that no turn counts a lease by a clock that stood still.
    """

    topics: Topics
    publish: Callable[[Outgoing], bool]
    put: Callable[[Event], object]
    background: Callable[[Callable[[], None]], object]
    measure: Callable[[tuple[Gpu, ...]], None]
    look: Callable[[Look], None]
    start: Callable[[StartTrainer], tuple[Child, bool]]
    suspended_s: Callable[[], float | None] = lambda: None


class Shell:
    """Everything that one agent has open, but for its connection and its threads."""

    def __init__(
        self, core: Core, around: Surroundings, spool: Spool, parts: Parts
    ) -> None:  # fmt: skip
        """Take over a core that has the spool's reports already."""
        self.core = core
        self.left = False
        self._around = around
        self._disk = DiskWork(spool, parts, around.put, around.background, self._send_chunk)
        self._children: dict[tuple[str, int], Child] = {}
        self._by_kind: Mapping[type[Effect], Callable[[Any], object]] = {
            **self._disk.by_kind,
            Outgoing: around.publish,
            Measure: lambda _: around.measure(self.core.gpus()),
            Look: around.look,
            StartTrainer: self._start,
            SignalTrainer: self._signal,
            Warn: lambda effect: log.warning("%s", effect.text),
            Leave: self._leave,
        }

    def turn(self, events: Sequence[Event], now: Now) -> None:
        """Take some events, and perform what comes of each."""
        self.core.on_suspended(self._around.suspended_s(), now)
        self._disk.turn(self.core.state.runs, now)
        for event in events or [Tick()]:
            if isinstance(event, TrainerExited):
                self._ended(event)
            elif isinstance(event, BundleMade) and self._disk.was_shared(event):
                again = MakeBundle(event.job_id, event.attempt)
                self._around.background(partial(self._disk.bundle, again))
                continue
            self.core.handle(event, now)
            for effect in self.core.take():
                self._by_kind[type(effect)](effect)

    def next_deadline(self) -> float | None:
        """Return when a turn is wanted without an event (monotonic seconds), or none."""
        return earliest(self.core.next_deadline(), self._disk.next_deadline())

    def waits_for_disk(self) -> bool:
        """Whether the disk has refused something that it is to be asked again."""
        return self._disk.next_deadline() is not None

    def children(self) -> list[Child]:
        """Return the trainers that run."""
        return list(self._children.values())

    def goodbye(self) -> Outgoing | None:
        """Return the last message, or none when the broker has never heard of us."""
        return self._presence(self.core.goodbye()) if self.core.state.session else None

    def will(self, session: str) -> Outgoing:
        """Return what the broker is to publish when the connection `session` dies."""
        return self._presence(self.core.will(session))

    def _presence(self, status: Status) -> Outgoing:
        topic = self._around.topics.status(self.core.state.settings.host)
        return Outgoing(topic, encode(status), 1, retain=True)

    def _leave(self, _: Leave) -> None:
        self.left = True

    def _signal(self, effect: SignalTrainer) -> None:
        child = self._children.get((effect.job_id, effect.attempt))
        if child is not None:
            child.send_signal(kill=effect.kill)

    def _send_chunk(self, artifact_id: str, index: int, data: bytes) -> None:
        topic = self._around.topics.chunk(self.core.state.settings.host, artifact_id, index)
        self._around.publish(Outgoing(topic, data, 0))

    def _start(self, effect: StartTrainer) -> None:
        assign = effect.assign
        key = (assign.job_id, assign.attempt)
        self._disk.note_name(assign)
        try:
            child, resumes = self._around.start(effect)
        except (OSError, FleetError) as error:
            text = f"the trainer could not be started: {plain(error)}"
            passing = isinstance(error, OSError)
            self._around.put(TrainerExited(*key, None, text, passing))
            return
        whence = "from a checkpoint" if resumes else "from the beginning"
        log.info("job %s: started %s", self._disk.about(*key), whence)
        self._children[key] = child
        self._around.put(TrainerStarted(*key, child.trainer_pid, resumes))

    def _ended(self, event: TrainerExited) -> None:
        key = (event.job_id, event.attempt)
        if self._children.pop(key, None) is None:
            return  # it was told that it has not been started
        name = self._disk.about(*key)
        why = self.core.why_ending(*key)
        if why:
            log.info("job %s: its trainer has ended; the attempt is %s", name, why)
        elif event.data_gone:
            log.warning(
                "job %s: its trainer %s, and its prepared data is not there; the job is given back",
                name,
                how_ended(event.code),
            )
        elif event.code == 0:
            log.info("job %s: its trainer is done", name)
        else:
            log.warning("job %s: its trainer %s", name, how_ended(event.code))
