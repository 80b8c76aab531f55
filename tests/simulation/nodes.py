"""Simulated machines, and what all of the fleet's programs have in common that run on them."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from broker.client.mailbox import Mailbox, feed
from broker.clock import Now
from broker.errors import StorageError
from broker.protocol.link_events import Outgoing
from broker.protocol.topics import Topics

from .disk import SimDisk
from .network import Link

if TYPE_CHECKING:
    from .agentnode import SimTrainer
    from .run import Run

ROOT: Final = Path("/state")
HEARTBEAT_S: Final = 30.0
STALE_S: Final = 120.0
TOPICS: Final = Topics()


class Cut(BaseException):
    """The process ends here, in the middle of what it was doing."""


class Machine:
    """A machine: clocks, a disk, processes. Its monotonic clock starts anew at each boot."""

    def __init__(self, run: Run, name: str) -> None:
        self.name = name
        self.run = run
        self.rng = random.Random(f"{name} {run.scenario.seed}")
        self.disk = SimDisk(self.rng, self.wall_s, self.before)
        self.children: dict[int, SimTrainer] = {}
        self.boots = 0
        self.skew_s = 0.0
        self.ailing = False  # whether its disk has ever been in trouble
        self.cut_in: int | None = None
        self.wanted: dict[str, float] = {}  # by its owner: how, and since when
        self._mono_zero_s = 0.0
        self.suspended_s = 0.0
        self.boot()

    def boot(self) -> None:
        """Start (again)."""
        self.boots += 1
        self.boot_id = f"boot{self.boots}of{self.name}"
        self._mono_zero_s = self.run.timeline.now_s - 1000.0 * self.rng.random()
        self.suspended_s = 0.0

    def slept(self, for_s: float) -> None:
        """It wakes up: the monotonic clock has stood still."""
        self._mono_zero_s += for_s
        self.suspended_s += for_s

    def now(self) -> Now:
        """Both clocks."""
        return Now(self.mono_s(), self.wall_s())

    def mono_s(self) -> float:
        """The monotonic clock."""
        return self.run.timeline.now_s - self._mono_zero_s

    def wall_s(self) -> float:
        """The clock of people."""
        return 1.8e9 + self.run.timeline.now_s + self.skew_s

    def before(self, _operation: str) -> None:
        """Called before each thing that leaves the process: here it may end."""
        if self.cut_in is not None:
            self.cut_in -= 1
            if self.cut_in <= 0:
                raise Cut


class Node(ABC):
    """A program on a machine: it is started, has turns, crashes, and is started again."""

    def __init__(self, run: Run, machine: Machine, client_id: str) -> None:
        self.run = run
        self.machine = machine
        self.client_id = client_id
        self.generation = 0
        self.working = 0  # on other threads
        self.up = False
        self.asleep = False
        self.naps = 0
        self.power = False  # whether the next cut is one of the power
        self.down_s = 1.0
        self.mailbox: Mailbox[Any] = Mailbox()
        self.link: Link | None = None
        self._turn_at_s = math.inf  # the next turn; infinite: none is due

    def start(self) -> None:
        """Start the program, unless it runs."""
        if self.up or self.run.removed(self):
            return
        self.generation += 1
        self.mailbox = Mailbox()
        self._turn_at_s = math.inf
        self.up = True
        try:
            self.begin()
        except Cut:
            self.crash()
        except (StorageError, OSError):
            # The program ends with its message; whoever supervises it starts it again.
            self.end(10.0)

    @abstractmethod
    def begin(self) -> None:
        """What the program does at its start."""

    @abstractmethod
    def turn(self, events: Sequence[Any]) -> None:
        """One turn of the program's loop."""

    @abstractmethod
    def next_deadline(self) -> float | None:
        """When it wants a turn without an event, by its own monotonic clock."""

    def put(self, event: Any) -> None:
        self.mailbox.put(event)
        self.wake(0.0)

    def from_link(self, generation: int) -> Callable[[Any], None]:
        """Return the inbox of this process's link."""
        deliver = feed(self.mailbox, TOPICS)

        def inbox(event: Any) -> None:
            if generation == self.generation and self.up:
                deliver(event)
                self.wake(self.machine.rng.random() * self.run.scenario.batch_s)

        return inbox

    def background(self, call: Callable[[], None]) -> None:
        """Have a slow function run on another thread."""
        generation = self.generation
        self.working += 1

        def work() -> None:
            if self.asleep and generation == self.generation and self.up:
                self.run.timeline.after(1.0, work)
                return
            self.working -= 1
            if generation == self.generation and self.up:
                self.guarded(call)

        self.run.timeline.after(self.machine.rng.random() * 0.5, work)

    def guarded(self, call: Callable[[], None]) -> None:
        """Carry something out; the process may end in it."""
        try:
            call()
        except Cut:
            self.crash()

    def publish(self, *messages: Outgoing) -> bool:
        """Hand messages to the link; the process may end between any two of them."""
        taken = True
        for message in messages:
            self.machine.before("publish")
            taken = taken and self.link is not None and self.link.publish(message)
        return taken

    def wake(self, delay_s: float) -> None:
        """Have a turn in a while, if there is none before."""
        timeline = self.run.timeline
        at_s = timeline.now_s + delay_s
        if self.up and at_s < self._turn_at_s:
            self._turn_at_s = at_s
            timeline.after(delay_s, partial(self._on_turn, self.generation, at_s))

    def _on_turn(self, generation: int, at_s: float) -> None:
        if generation != self.generation or not self.up or self._turn_at_s != at_s:
            return
        self._turn_at_s = math.inf
        if self.asleep:
            return
        try:
            self.turn(self.mailbox.take(0.0))
        except Cut:
            self.crash()
        if self.up and generation == self.generation:
            self.wake_at_deadline()

    def wake_at_deadline(self) -> None:
        """Have a turn when the next deadline comes."""
        due_s = self.next_deadline()
        if due_s is not None:
            self.wake(max(0.0, due_s - self.machine.mono_s()) + 1e-6)

    def crash(self) -> None:
        """The process ends without a word; with it the machine, if the power is cut."""
        self.machine.cut_in = None
        if self.link is not None:
            self.link.vanish() if self.power else self.link.die()
        self.run.note(f"{self.client_id}: {'power cut' if self.power else 'killed'}")
        self.run.faults[f"{'power cut' if self.power else 'kill'} of {self.role}"] += 1
        self.on_crash()
        if self.power:
            self.machine.disk.power_cut()
            self.machine.boot()
        self.power = False
        self.end(self.down_s)

    role = "node"

    def on_crash(self) -> None:  # noqa: B027 - most roles leave nothing behind on the machine
        """What becomes of the rest of the machine."""

    def end(self, down_s: float) -> None:
        """The process is gone; start again in a while."""
        self.up = False
        self.generation += 1
        self.run.timeline.after(down_s, self.start)

    def woke(self) -> None:  # noqa: B027 - most roles have nothing to look at
        """What is looked at when the machine wakes up."""

    def sleep(self, for_s: float) -> None:
        """The machine is suspended for a while."""
        self.asleep = True
        self.naps += 1
        self.run.timeline.after(for_s, partial(self._wake_up, for_s, self.machine.boots))

    def _wake_up(self, for_s: float, boot: int) -> None:
        self.asleep = False
        if self.machine.boots == boot:
            self.machine.slept(for_s)
        self.woke()
        self._turn_at_s = math.inf
        self.wake(0.0)
