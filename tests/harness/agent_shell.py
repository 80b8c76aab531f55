"""An agent's core in its real shell, with a real spool: the counterpart of `harness.shell`."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.core.effects import StartTrainer, Vitals
from agent.core.reactor import Core
from agent.programs.parts import Parts, open_parts
from agent.programs.settings import ProgramSettings
from agent.service.shell import Shell, Surroundings
from agent.spool.checkpoints import Checkpoints
from agent.spool.spool import Spool
from broker.protocol import messages as m
from broker.protocol.link_events import Incoming, Outgoing
from broker.protocol.topics import Topics
from broker.system.machine import system_clock
from tests.harness.agent import GIB, JOB, Agent, heard, leased


def shell_of(core: Core, spool: Spool, checkpoints: Checkpoints, **around: Any) -> Shell:
    """A shell whose surroundings do nothing but background work, and what `around` says."""
    nothing: dict[str, Any] = {
        name: lambda _: None for name in ("publish", "put", "measure", "look", "start")
    }
    whole = nothing | {"background": lambda work: work()} | around
    parts = replace(parts_of(spool.folder.parent), checkpoints=checkpoints)
    return Shell(core, Surroundings(Topics(), **whole), spool, parts)


def parts_of(state: Path) -> Parts:
    """What an agent without a program of the fleet opens in its folder."""
    return open_parts(state, ProgramSettings(), None, system_clock, lambda build: build())


class Trainer:
    """A trainer's process that does not listen."""

    trainer_pid = 77

    def send_signal(self, *, kill: bool) -> None:
        """Nothing comes of it."""

    def wait(self, timeout_s: float) -> None:
        """Nothing is waited for."""


class AgentShell:
    """A shell around an agent's core; what is said goes to `agent.sent`."""

    def __init__(
        self, state: Path, agent: Agent | None = None, *,
        spool: Spool | None = None, checkpoints: Checkpoints | None = None, **around: Any,
    ) -> None:  # fmt: skip
        self.agent = agent or Agent()
        self.spool = spool or Spool(state)
        self.events: deque[Any] = deque()
        self.started: list[StartTrainer] = []
        usual: dict[str, Any] = {
            "publish": self._publish, "put": self.events.append, "start": self._start,
            "measure": self._measure, "look": self._look,
        }  # fmt: skip
        self.shell = shell_of(
            self.agent.core, self.spool, checkpoints or Checkpoints(state), **usual | around
        )

    def _publish(self, message: Outgoing) -> bool:
        topic = self.agent.topics.parse(message.topic)
        self.agent.sent += [(topic, said) for said in heard(topic.kind, message.payload)]
        return True

    def _measure(self, gpus: tuple[m.Gpu, ...]) -> None:
        self.events.append(Vitals(8 * GIB, self.agent.data, gpus=gpus))

    def _look(self, _: object) -> None:
        self.events.append(replace(self.agent.seen, local=self.agent.local))

    def _start(self, effect: StartTrainer) -> tuple[Trainer, bool]:
        self.started.append(effect)
        return Trainer(), False

    def happens(self, *events: Any) -> None:
        """Some events come in one turn, and then what comes of them."""
        self.events += events
        while self.events:
            taken = list(self.events)
            self.events.clear()
            self.shell.turn(taken, self.agent.now)

    def passes(self, seconds: float) -> None:
        end_s = self.agent.mono_s + seconds
        while (due_s := self.shell.next_deadline()) is not None and due_s <= end_s:
            self.agent.mono_s = max(self.agent.mono_s, due_s)
            self.shell.turn([], self.agent.now)
            self.happens()
        self.agent.mono_s = end_s

    def hears(self, request: Any) -> None:
        self.happens(Incoming(self.agent.topics.request("pi"), m.encode(request)))

    def assigned(self, attempt: int = 1, job_id: str = JOB, **more: Any) -> None:
        """The coordinator assigns a job, and learns that this agent has it."""
        fields = {"instance": "i1", "name": "job", "model": "gbt", "mode": "oracle"} | more
        self.hears(m.Assign(id=f"a{attempt}", job_id=job_id, attempt=attempt, **fields))
        self.happens(leased(self.agent.core))
