"""Home Assistant was switched off: its entities are removed, once, and nothing more is said."""

from __future__ import annotations

from collections.abc import Sequence

from broker.clock import Now
from broker.topics import Topics
from broker.wire import Connected, Outgoing
from coordinator.faces.face import E
from coordinator.faces.homeassistant_discovery import COORDINATOR, Discovery
from coordinator.faces.homeassistant_energy import remembered
from coordinator.jobs import Change
from coordinator.records import Record
from coordinator.world import World


class Farewell:
    """The face of a fleet that was shown in Home Assistant, and is no longer.

    `kept` is what the face has kept. Raises ValueError when it is not.
    """

    def __init__(self, topics: Topics, kept: bytes) -> None:
        """See the class."""
        discovery = Discovery(topics, "", commands=False)
        meters = remembered(kept)
        nodes = (COORDINATOR, *meters.of, *meters.leaving)
        self._out = [message for node in nodes for message in discovery.removal(node)]
        self._out += [Outgoing(topics.home_state(node), b"", retain=True) for node in nodes]
        self._connected = False
        self._memory: bytes | None = None

    def sift(self, events: Sequence[E], _now: Now) -> list[E]:
        """Note the connection, and leave every event to the core."""
        self._connected |= any(isinstance(event, Connected) for event in events)
        return list(events)

    def turn(
        self, _world: World, _changes: Sequence[Change | Record], _now: Now, *, active: bool
    ) -> list[Outgoing]:
        """Return the removals at the first connection."""
        del active
        if not self._connected or not self._out:
            return []
        out, self._out = self._out, []
        self._memory = b""
        return out

    def next_deadline(self) -> None:
        """No turn is wanted."""
        return

    def take_memory(self) -> bytes | None:
        """Return that nothing is to be kept, once that is so."""
        memory, self._memory = self._memory, None
        return memory

    def last_memory(self) -> bytes | None:
        """Nothing changes at the end."""
        return None
