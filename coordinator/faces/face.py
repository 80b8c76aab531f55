"""What the shell asks of a face: looked at after every turn, it says what is to be published."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from broker.clock import Now
from broker.protocol.events import Outgoing
from coordinator.core.state import World
from coordinator.jobs.jobs import Change
from coordinator.jobs.records import Record

E = TypeVar("E")


class Face(Protocol):
    """A face: a plain state machine, without IO."""

    def sift(self, events: Sequence[E], now: Now) -> list[E]:
        """Note what concerns the face, and return what is for the core."""
        ...

    def turn(
        self, world: World, changes: Sequence[Change | Record], now: Now, *, active: bool
    ) -> list[Outgoing]:
        """Return what is to be published after a turn, which may have changed anything if `active`.

        `changes` are those that were committed. What `take_memory` has is to be kept first.
        """
        ...

    def next_deadline(self) -> float | None:
        """Return when a turn is wanted (monotonic seconds), or none."""
        ...

    def take_memory(self) -> bytes | None:
        """Return what is to be kept for the next start: empty for nothing, none for no change."""
        ...

    def last_memory(self) -> bytes | None:
        """Return what is to be kept at the end, likewise."""
        ...
