"""One run: a scenario, from its first connection to the quiet after its last fault."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from broker.errors import BadTopic
from broker.protocol.link_events import Incoming, LinkEvent, Outgoing
from broker.protocol.messages import (
    MAX_JOBS,
    AskCancel,
    AskDrain,
    AskEach,
    AskPause,
    AskReload,
    AskRequeue,
    AskResume,
    AskRun,
    AskSnooze,
    Wire,
    encode,
)
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topic

from . import datasets, programs
from .agentnode import AgentNode
from .checks import Checker
from .clock import Timeline
from .coordinatornode import CoordinatorNode
from .givenback import GivenBack
from .network import Broker, Link, Weather
from .nodes import TOPICS, Machine, Node
from .scenario import FAULTS_S, Fault, JobPlan, Scenario, extra_jobs
from .trainer_checks import Violation

_UNTOLD: Final = frozenset({"job/log", "capability", "jobs", "job/progress"})
_TOLD: Final = (
    "type", "job_id", "attempt", "state", "verdict", "reason", "why", "reasons", "error",
    "final", "missing", "held", "job", "message", "instance", "session",
)  # fmt: skip
QUIET_S: Final = 3000.0
POLL_S: Final = 5.0
GIVEN_BACK_S: Final = 150.0  # after the last fault


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    seed: int
    violation: Violation | None
    steps: int
    virtual_s: float
    jobs: Counter[str]
    faults: Counter[str]
    trace: list[str] = field(default_factory=list)


class Run:
    """A fleet under a scenario. `trace` keeps a line for each thing that happens."""

    def __init__(self, scenario: Scenario, *, trace: bool = False) -> None:
        self.scenario = scenario
        self.timeline = Timeline()
        self.faults: Counter[str] = Counter()
        self.lines: list[str] = []
        self._trace = trace
        self._ids: dict[str, itertools.count[int]] = {}
        self._pids = itertools.count(100)
        self._jobs = {job.spec.job_id: job for job in (*scenario.jobs, *extra_jobs())}
        self._removed: set[int] = set()
        self.twinned: set[str] = set()  # hosts whose name a second agent has used
        self.struck = 0  # by what nobody has asked for
        self.broker = Broker(
            self.timeline, random.Random(f"network {scenario.seed}"), scenario.quirks
        )
        self.broker.weather = replace(scenario.weather)
        if trace:
            self.broker.watch = self._on_message
        self.checker = Checker(self)
        self.given_back = GivenBack(self.checker)
        self.coordinator = CoordinatorNode(self, Machine(self, "coordinator"))
        self.agents = [AgentNode(self, Machine(self, h.name), h) for h in scenario.hosts]
        self.operator = Operator(self)

    def close(self) -> None:
        """Nobody looks at it any more."""
        self.coordinator.ledger.end()

    def go(self) -> Outcome:
        """Run to the end, or to the first violation."""
        violation = None
        try:
            self._go()
        except Violation as found:
            violation = found
            self.note(f"VIOLATION  {found}")
        states = Counter(job.state.value for job in self.checker.rows.values())
        return Outcome(
            self.scenario.seed, violation, self.timeline.steps, self.timeline.now_s, states,
            self.faults + self.broker.faults, self.lines,
        )  # fmt: skip

    def _go(self) -> None:
        after = self.timeline.after
        for number, node in enumerate((self.coordinator, *self.agents)):
            after(number * 0.1, node.start)
        self.operator.start()
        if self.scenario.has_data:
            datasets.store(self.coordinator.machine, self.coordinator.ledger)
        if self.scenario.program is not None:
            programs.start(self, self.scenario.program)
        for fault in self.scenario.faults:
            after(fault.at_s, lambda fault=fault: self._strike(fault))
        ends_s = max([0.0, *(fault.at_s + fault.for_s + 5.0 for fault in self.scenario.faults)])
        self.timeline.run(min(FAULTS_S, ends_s) if self.scenario.faults else 1.0)
        self.timeline.run(ends_s)
        self._heal()
        work_s = sum(job.duration_s for job in self.scenario.jobs)
        self.timeline.run(self.timeline.now_s + QUIET_S + 3 * work_s, self._is_quiet)
        self.checker.finally_()

    def _is_quiet(self) -> bool:
        if self.timeline.now_s < self._look_at_s:
            return False
        self._look_at_s = self.timeline.now_s + POLL_S
        return self.checker.settled()

    _look_at_s = 0.0

    def _heal(self) -> None:
        self.note("--- no more faults")
        self.broker.weather = Weather(latency_s=0.005)
        self.broker.cut_off.clear()
        for node in (self.coordinator, *self.agents):
            node.machine.cut_in = None
            node.machine.disk.trouble = ""
        self.timeline.after(GIVEN_BACK_S, self.checker.given_back)

    # what the nodes ask

    def note(self, text: str) -> None:
        """Keep a line of the trace."""
        if self._trace:
            self.lines.append(f"{self.timeline.now_s:10.3f}  {text}")

    def id_maker(self, prefix: str) -> Callable[[], str]:
        """Return a maker of ids that nobody else makes."""
        count = self._ids.setdefault(prefix, itertools.count(1))
        return lambda: f"{prefix}.{next(count)}"

    def next_pid(self) -> int:
        """Return a new process id."""
        return next(self._pids)

    def job(self, job_id: str) -> JobPlan:
        """Return what a job's trainer does."""
        return self._jobs[job_id]

    def name_of(self, job_id: str) -> str:
        """Return a job's name."""
        job = self._jobs.get(job_id)
        return job.spec.name if job else job_id[:8]

    def result_of(self, job_id: str, attempt: int) -> bytes:
        """Return the bytes that an attempt's trainer has written."""
        job = self._jobs[job_id]
        which = job_id if job.same_bytes else f"{job_id}.{attempt}"
        block = hashlib.sha256(which.encode()).digest()
        return (block * (job.size_bytes // len(block) + 1))[: job.size_bytes]

    def removed(self, node: Node) -> bool:
        """Whether a machine was taken away for good."""
        return id(node) in self._removed

    # faults

    def _strike(self, fault: Fault) -> None:
        self.faults[fault.kind] += 1
        self.struck += fault.kind not in {"operator", "owner"}
        self.note(f"FAULT {fault.kind} {' '.join(fault.who)} {fault.for_s:.1f} s {fault.detail}")
        getattr(self, "_" + fault.kind.replace("-", "_"))(fault)

    def _nodes(self, fault: Fault) -> list[Node]:
        everybody: dict[str, Node] = {node.host.name: node for node in self.agents}
        everybody["coordinator"] = self.coordinator
        return [everybody[name] for name in fault.who if name in everybody]

    def _crash(self, fault: Fault) -> None:
        for node in self._nodes(fault):
            node.machine.cut_in = fault.detail["after"]
            node.down_s = max(0.1, fault.for_s)

    def _power(self, fault: Fault) -> None:
        for node in self._nodes(fault):
            node.power = True
        self._crash(fault)

    def _leave(self, fault: Fault) -> None:
        for node in self._nodes(fault):
            if isinstance(node, AgentNode) and node.up:
                node.leave(max(0.1, fault.for_s))

    def _broker(self, fault: Fault) -> None:
        self.broker.restart(fault.for_s, forgets=fault.detail["forgets"])

    def _partition(self, fault: Fault) -> None:
        clients = [node.client_id for node in self._nodes(fault)]
        self.broker.cut(clients)
        self.timeline.after(fault.for_s, lambda: self.broker.heal(clients))

    def _half_open(self, fault: Fault) -> None:
        for node in self._nodes(fault):
            self.broker.half_open(node.client_id, broker_forgets=fault.detail["broker_forgets"])

    def _reset(self, fault: Fault) -> None:
        for node in self._nodes(fault):
            self.broker.reset(node.client_id, fault.for_s)

    def _disk(self, fault: Fault) -> None:
        for node in self._nodes(fault):
            node.machine.disk.trouble = fault.detail["how"]
            node.machine.ailing = True
            self.timeline.after(fault.for_s, lambda node=node: _repair(node))

    def _clock(self, fault: Fault) -> None:
        for node in self._nodes(fault):
            node.machine.skew_s += fault.detail["by_s"]

    def _sleep(self, fault: Fault) -> None:
        for node in self._nodes(fault):
            if node.up and not node.asleep:
                node.sleep(fault.for_s)

    def _rot(self, fault: Fault) -> None:
        for node in self._nodes(fault):
            if isinstance(node, AgentNode) and node.spool is not None:
                bundles = node.machine.disk.glob(node.spool.bundle_path("x").parent, "*.tar.zst")
                node.machine.ailing = True
                if bundles:
                    node.machine.disk.rot(bundles[0])

    def _twin(self, fault: Fault) -> None:
        host = next((one for one in self.scenario.hosts if one.name == fault.who[0]), None)
        if host is None:
            return
        twin = AgentNode(self, Machine(self, f"{host.name}-twin{self.next_pid()}"), host)
        self.twinned.add(host.name)
        twin.start()
        self.timeline.after(fault.for_s, lambda: self._remove(twin))

    def _gone(self, fault: Fault) -> None:
        for node in self._nodes(fault):
            if isinstance(node, AgentNode) and len(self.agents) > 1:
                self.agents.remove(node)
                self._remove(node)

    def _remove(self, node: AgentNode) -> None:
        self._removed.add(id(node))
        for child in list(node.machine.children.values()):
            child.exits(-9)
        if node.up and node.link is not None:
            node.link.vanish()
        node.up = False
        node.generation += 1

    def _owner(self, fault: Fault) -> None:
        """Somebody wants the machine for a while: says so, or just sits down at it."""
        how = fault.detail["how"]
        for node in self._nodes(fault):
            if isinstance(node, AgentNode) and how not in node.machine.wanted:
                node.machine.wanted[how] = self.timeline.now_s
                self.timeline.after(fault.for_s, partial(node.machine.wanted.pop, how, 0.0))
                self.checker.owner_came(node, how)

    def _operator(self, fault: Fault) -> None:
        verb, job = fault.detail["verb"], fault.detail["job"]
        if fault.detail["held"]:  # one that is being worked on, if there is any: a worse moment
            held = [row for row in self.checker.rows.values() if row.is_held]
            owed = {one for node in self.agents if node.shell for one in node.shell.core.state.owed}
            done = [row for row in held if row.job_id in owed]  # its report is on the way
            job = min((row.spec.name for row in done or held), default=job)
        self.operator.does(verb, job, fault.detail["host"])

    def _on_message(self, sender: str, _to: str, message: Outgoing) -> None:
        try:
            topic = TOPICS.parse(message.topic)
        except BadTopic:
            return
        raw = topic.kind.value.endswith(("/chunk", "/push"))
        if raw or topic.kind.value in _UNTOLD or not message.payload:
            return
        said = json.loads(message.payload)
        for one in said if isinstance(said, list) else [said]:
            self._note_said(sender, topic, one)

    def _note_said(self, sender: str, topic: Topic, said: dict[str, Any]) -> None:
        if "job_id" in said:
            said["job_id"] = self.name_of(said["job_id"])
        if "jobs" in said and topic.kind is Kind.HEARTBEAT:
            said["held"] = [
                f"{self.name_of(one['job_id'])}.{one['attempt']} {one['phase']}"
                for one in said["jobs"]
            ]
        words = [f"{key}={said[key]}" for key in _TOLD if said.get(key)]
        if topic.kind is Kind.HEARTBEAT and not said.get("held"):
            return
        self.note(f"{sender:18} {topic.kind.value:16} {topic.host:6} {' '.join(words)}")


def _repair(node: Node) -> None:
    node.machine.disk.trouble = ""


_VERBS: Final[dict[str, Callable[[str, str, str], Wire]]] = {
    "cancel": lambda one, job, _: AskCancel(id=one, job=job),
    "requeue": lambda one, job, _: AskRequeue(id=one, job=job),
    "drain": lambda one, _, host: AskDrain(id=one, host=host),
    "drain-now": lambda one, _, host: AskDrain(id=one, host=host, now=True),
    "resume": lambda one, _, host: AskResume(id=one, host=host),
    "snooze-now": lambda one, _, host: AskSnooze(id=one, host=host, for_s=90.0, now=True),
    "snooze": lambda one, _, host: AskSnooze(id=one, host=host, for_s=40.0),
    "pause": lambda one, *_: AskPause(id=one),
    "pause-off": lambda one, *_: AskPause(id=one, off=True),
    "run": lambda one, _, host: AskRun(
        id=one, job={"model": "gbt", "mode": "oracle", "hyper": {"n": 900 + int(host[1:]) % 2}}
    ),
}


class Operator:
    """Somebody at a terminal: asks until there is an answer, or for half a minute."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._waiting: dict[str, bytes] = {}
        self._new_id = run.id_maker("op")
        self._link = Link(
            run.broker, "op", TOPICS.for_operator("operator:op/cli"), self._inbox, None,
            self._new_id,
            random.Random(f"operator {run.scenario.seed}"),
        )  # fmt: skip

    def start(self) -> None:
        """Connect."""
        self._link.start()

    def does(self, verb: str, job: str, host: str) -> None:
        """Carry out a verb."""
        run, plan = self._run, self._run.scenario.plan()
        request_id = self._new_id()
        if verb in _VERBS:
            request = encode(_VERBS[verb](request_id, job, host))
        elif verb == "cancel-each":
            names = tuple(spec.name for spec in plan.jobs[:MAX_JOBS])
            ask = AskEach(id=request_id, action="cancel", jobs=names, states=("pending",))
            request = encode(ask)
        else:
            if verb == "broken":
                run.coordinator.manifest = None
            elif verb == "reload-less":
                kept = tuple(spec for spec in plan.jobs if spec.name != job)
                run.coordinator.manifest = replace(plan, jobs=kept)
            else:
                run.coordinator.manifest = plan
            request = encode(AskReload(id=request_id))
        self._waiting[request_id] = request
        for number in range(15):
            run.timeline.after(2.0 * number, lambda: self._ask(request_id))
        run.timeline.after(30.0, lambda: self._waiting.pop(request_id, None))

    def _ask(self, request_id: str) -> None:
        if request_id in self._waiting:
            topic = TOPICS.operator_request("operator:op/cli")
            self._link.publish(Outgoing(topic, self._waiting[request_id]))

    def _inbox(self, event: LinkEvent) -> None:
        if isinstance(event, Incoming):
            for request_id in list(self._waiting):
                if f'"{request_id}"'.encode() in event.payload:
                    del self._waiting[request_id]
