"""The fleet in Home Assistant: what is to be published after each turn of the coordinator.

A state machine without IO: it sees events before the core takes them, and the core's world after
that. A changed state is published within a second; figures that drift, such as a host's load, at
most every ten seconds. Discovery and every state are published again when the broker connects and
when Home Assistant starts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from broker.clock import Now, Randomness
from broker.protocol.link_events import Connected, Disconnected, Incoming, Outgoing
from broker.protocol.messages import HomeEvent, HomeFleet, HomeHost, encode
from broker.protocol.topics import HOME_STATUS, Topics
from coordinator.core.state import World
from coordinator.faces.discovery import COORDINATOR, Discovery, Shape
from coordinator.faces.energy import remembered
from coordinator.faces.homeassistant_states import (
    ended,
    fleet_state,
    held_by_host,
    host_state,
    is_open,
    shown,
)
from coordinator.jobs.hosts import Host
from coordinator.jobs.jobs import Change
from coordinator.jobs.records import HostForgotten, Record
from coordinator.jobs.states import Event, JobState

E = TypeVar("E")
Keep = Callable[[bytes], object]


LOOK_EVERY_S: Final = 1.0
HOSTS_A_SECOND: Final = 500  # a look at more of them takes longer, and comes less often
DRIFT_EVERY_S: Final = 10.0
MESSAGES_A_LOOK: Final = 400
EVENTS_A_LOOK: Final = 20
MAX_EVENTS: Final = 200  # that wait; the newest stay
BIRTH_JITTER_S: Final = 3.0
BIRTH_EVERY_S: Final = 10.0
CLEAR_AFTER_S: Final = 5.0  # until Home Assistant has removed the entities that read it
_ENDS: Final = frozenset({Event.COMPLETED, Event.FAILED, Event.EXHAUSTED})


def farewell(topics: Topics, kept: bytes) -> list[Outgoing]:
    """Return the messages that remove every entity from Home Assistant.

    `kept` is what `HomeAssistant` has kept. Raises ValueError when it is not.
    """
    discovery = Discovery(topics, "", commands=False)
    meters = remembered(kept)
    nodes = (COORDINATOR, *meters.hosts, *meters.leaving)
    out = [message for node in nodes for message in discovery.removal(node)]
    return out + [Outgoing(topics.home_state(node), b"", retain=True) for node in nodes]


class HomeAssistant:
    """The face; see the module.

    `keep` puts bytes on the disk for the next start, which are then `kept`. Raises ValueError when
    these are not.
    """

    def __init__(
        self,
        topics: Topics,
        rng: Randomness,
        version: str,
        kept: bytes | None,
        keep: Keep,
        *,
        commands: bool,
    ) -> None:
        """`version` is the coordinator's; `commands`: Home Assistant may give some."""
        self._keep = keep
        self._topics = topics
        self._rng = rng
        self._version = version
        self._discovery = Discovery(topics, version, commands=commands)
        self._meters = remembered(kept)
        self._connected = False
        self._dirty = False
        self._next_look_s = 0.0
        self._later_s: float | None = None
        self._again_s: float | None = None
        self._born_s: float | None = None
        self._shapes: dict[str, Shape] = {}
        self._states: dict[str, tuple[HomeHost | HomeFleet, float]] = {}
        self._events: deque[HomeEvent] = deque(maxlen=MAX_EVENTS)
        self._removals: deque[Outgoing] = deque()
        self._clears: dict[str, float] = {}
        self._was_open: bool | None = None

    def sift(self, events: Sequence[E], now: Now) -> list[E]:
        """Note what concerns Home Assistant, and return what is for the core."""
        left: list[E] = []
        for event in events:
            self._dirty = True
            match event:
                case Incoming(topic, payload) if topic == HOME_STATUS:
                    if payload == b"online":
                        self._on_birth(now)
                    continue
                case Connected():
                    self._connected, self._again_s = True, now.mono_s
                    for host in sorted(self._meters.leaving):
                        self._remove(host, now)
                case Disconnected():
                    self._connected = False
                case _:
                    pass
            left.append(event)
        return left

    def turn(
        self, world: World, changes: Sequence[Change | Record], now: Now, *, active: bool
    ) -> list[Outgoing]:
        """Return what is to be published after a turn; `changes` are those committed.

        `active`: anything may have changed.
        """
        for change in changes:
            if isinstance(change, Change):
                self._note_end(change)
            elif isinstance(change, HostForgotten):
                self._retire(change.host, now)
                self._keep_meters(now)  # before the removals are published
        self._dirty |= active
        due_s = self.next_deadline()
        if due_s is None or now.mono_s < due_s:
            return []
        return self._look(world, now)

    def next_deadline(self) -> float | None:
        """Return when a turn is wanted (monotonic seconds), or none."""
        if not self._connected:
            return None
        due_s = [self._next_look_s] if self._dirty or self._events or self._removals else []
        later_s = (self._again_s, self._later_s)
        due_s += [max(at_s, self._next_look_s) for at_s in later_s if at_s is not None]
        due_s += self._clears.values()
        return min(due_s, default=None)

    def close(self) -> None:
        """Keep the newest readings for the next start."""
        self._keep(self._meters.kept())

    def _keep_meters(self, now: Now) -> None:
        if (kept := self._meters.due(now)) is not None:
            self._keep(kept)

    def _on_birth(self, now: Now) -> None:
        """Home Assistant has started: publish everything again, jittered and rate-limited."""
        after_s = BIRTH_JITTER_S * self._rng.random()
        if self._born_s is not None:
            after_s = max(after_s, self._born_s + BIRTH_EVERY_S - now.mono_s)
        at_s = now.mono_s + after_s
        self._again_s = at_s if self._again_s is None else min(self._again_s, at_s)

    def _note_end(self, change: Change) -> None:
        if change.event not in _ENDS:
            return
        job = change.after
        failed = job.state is JobState.FAILED
        self._events.append(
            HomeEvent(
                event_type="job_failed" if failed else "job_completed",
                job=shown(job.spec.name),
                host=job.host,
                error=shown(job.error or "") if failed else None,
            )
        )

    def _retire(self, host: str, now: Now) -> None:
        self._shapes.pop(host, None)
        self._states.pop(host, None)
        self._meters.forget(host)
        self._remove(host, now)

    def _remove(self, host: str, now: Now) -> None:
        """Remove a host's entities, and a while later the state that they read.

        This is repeated at each connection until it is done: messages may be lost.
        """
        self._removals.extend(self._discovery.removal(host))
        self._clears[host] = now.mono_s + CLEAR_AFTER_S

    def _look(self, world: World, now: Now) -> list[Outgoing]:
        """Compare everything with what was published, and return what differs."""
        self._next_look_s = now.mono_s + LOOK_EVERY_S + len(world.hosts) / HOSTS_A_SECOND
        self._dirty, self._later_s = False, None
        if self._again_s is not None and now.mono_s >= self._again_s:
            self._again_s, self._born_s = None, now.mono_s
            self._shapes.clear()
            self._states.clear()
        out = [*self._leaving(now)]
        for host in world.hosts.values():
            self._meters.read(host.name, host.heartbeat, now)
        self._keep_meters(now)
        out += self._node(Shape(COORDINATOR, "Coordinator", self._version), fleet_state(world), now)
        out += self._hosts(world, MESSAGES_A_LOOK - len(out), now)
        self._note_plan(world)
        topic = self._topics.home_event(COORDINATOR)
        for _ in range(min(len(self._events), EVENTS_A_LOOK)):
            out.append(Outgoing(topic, encode(self._events.popleft())))
        return out

    def _leaving(self, now: Now) -> Iterator[Outgoing]:
        for _ in range(min(len(self._removals), MESSAGES_A_LOOK)):
            yield self._removals.popleft()
        for host in [host for host, at_s in self._clears.items() if at_s <= now.mono_s]:
            del self._clears[host]
            self._meters.has_left(host)
            yield Outgoing(self._topics.home_state(host), b"", retain=True)

    def _hosts(self, world: World, room: int, now: Now) -> list[Outgoing]:
        """Return the messages about hosts, about `room` of them, those unsaid for longest first."""
        held = held_by_host(world)
        out: list[Outgoing] = []
        for host in sorted(world.hosts.values(), key=self._said_s):
            if host.capability is None:
                continue  # it is about to say what it is
            if len(out) >= room:
                self._dirty = True
                break
            meter = self._meters.hosts[host.name]
            state = host_state(world, host, held.get(host.name, []), meter.energy_kwh, now)
            out += self._node(_shape(host, meter.measures), state, now)
        return out

    def _said_s(self, host: Host) -> float:
        state = self._states.get(host.name)
        return -1.0 if state is None else state[1]

    def _node(self, shape: Shape, state: HomeHost | HomeFleet, now: Now) -> Iterator[Outgoing]:
        """Yield a node's discovery if it has changed, then its state if that is due."""
        node = shape.node
        said = self._states.get(node)
        if self._shapes.get(node) != shape:
            self._shapes[node], said = shape, None  # an entity that is new has no state yet
            yield from self._discovery.messages(shape)
        if said is not None:
            before, at_s = said
            if before == state:
                return
            if _urgent(before) == _urgent(state) and now.mono_s < at_s + DRIFT_EVERY_S:
                due_s = at_s + DRIFT_EVERY_S
                self._later_s = due_s if self._later_s is None else min(due_s, self._later_s)
                return
        self._states[node] = (state, now.mono_s)
        self._clears.pop(node, None)
        self._meters.has_left(node)
        yield Outgoing(self._topics.home_state(node), encode(state), retain=True)

    def _note_plan(self, world: World) -> None:
        was_open, self._was_open = self._was_open, is_open(world)
        if was_open and not self._was_open and any((jobs := ended(world)).values()):
            self._events.append(HomeEvent(event_type="plan_done", jobs=jobs))


def _urgent(state: HomeHost | HomeFleet) -> object:
    """Return what somebody waits for; the rest drifts."""
    if isinstance(state, HomeFleet):
        return state
    return (state.state, state.online, state.accepts, state.problems, state.job)


def _shape(host: Host, measures: frozenset[str]) -> Shape:
    capability = host.capability
    if capability is None:
        return Shape(host.name, measures=measures)
    gpus = [gpu.name or "GPU" for gpu in capability.gpus]
    model = (f"{len(gpus)} x " if len(gpus) > 1 else "") + gpus[0] if gpus else capability.cpu
    version = shown(capability.agent_version)
    return Shape(host.name, shown(model or capability.arch)[:100], version, measures)
