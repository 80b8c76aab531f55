"""The one inbox of a service: bounded, in arrival order, read by the one thread that decides.

An event with a key takes the place of an unread one with the same key: a newer heartbeat makes an
older one worthless, and a repeated question is answered once. Each lane but `LOCAL` is bounded by
number and by bytes; what finds its lane full is dropped and counted.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, NamedTuple, TypeVar

from broker.errors import BadTopic
from broker.protocol.link_events import Incoming, LinkEvent
from broker.protocol.messages import MAX_CHUNK_BYTES
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topics

E = TypeVar("E")


class Lane(StrEnum):
    """How an event is treated when the mailbox is full."""

    LOCAL = "local"  # of this process, which bounds them: never dropped
    CONTROL = "control"  # dropped: the sender retries
    LATEST = "latest"  # replaced by newer ones; a dropped birth is asked for again
    BULK = "bulk"  # dropped: chunks are asked for again, log lines are lost


class Limit(NamedTuple):
    """How many unread events a lane holds, and how large they may be together."""

    events: int
    size_bytes: int


_MIB: Final = 1024 * 1024
LIMITS: Final[dict[Lane, Limit]] = {
    Lane.CONTROL: Limit(50_000, 128 * _MIB),
    Lane.LATEST: Limit(60_000, 256 * _MIB),
    Lane.BULK: Limit(4096, 48 * _MIB),
}
_LANES: Final[dict[Kind, Lane]] = {
    Kind.HEARTBEAT: Lane.LATEST,
    Kind.CAPABILITY: Lane.LATEST,
    Kind.PROGRESS: Lane.LATEST,
    Kind.LOG: Lane.BULK,
    Kind.CHUNK: Lane.BULK,
    Kind.CHECKPOINT_CHUNK: Lane.BULK,
    Kind.DOWNLOAD_CHUNK: Lane.BULK,
    Kind.PUSH_CHUNK: Lane.BULK,
}


@dataclass(slots=True)
class _Letter(Generic[E]):
    event: E
    lane: Lane
    key: Hashable
    size_bytes: int


class Mailbox(Generic[E]):
    """A bounded inbox. Any thread may `put`; one thread calls `take`."""

    def __init__(self) -> None:
        self._letters: deque[_Letter[E]] = deque()
        self._unread: Counter[Lane] = Counter()
        self._bytes: Counter[Lane] = Counter()
        self._by_key: dict[Hashable, _Letter[E]] = {}
        self._dropped: Counter[Lane] = Counter()
        # A condition's own `with` can be left locked by a Ctrl-C; a lock's cannot.
        self._lock = threading.RLock()
        self._ready = threading.Condition(self._lock)

    def put(
        self, event: E, lane: Lane = Lane.LOCAL, key: Hashable = None, size_bytes: int = 0
    ) -> bool:
        """Add an event, or replace the unread one with its key; return whether it was taken."""
        with self._lock:
            unread = self._by_key.get(key) if key is not None else None
            more_bytes = size_bytes - (unread.size_bytes if unread else 0)
            more_events = 0 if unread else 1
            if lane is not Lane.LOCAL and not self._has_room(lane, more_bytes, more_events):
                self._dropped[lane] += 1
                return False
            self._bytes[lane] += more_bytes
            if unread is not None:
                unread.event, unread.size_bytes = event, size_bytes
                return True
            letter = _Letter(event, lane, key, size_bytes)
            if key is not None:
                self._by_key[key] = letter
            self._letters.append(letter)
            self._unread[lane] += 1
            self._ready.notify()
        return True

    def take(self, timeout_s: float | None, at_most: int = 1000) -> list[E]:
        """Return up to `at_most` events in arrival order; empty when none came in `timeout_s`."""
        with self._lock:
            if not self._letters and timeout_s != 0.0:
                self._ready.wait(timeout_s)
            events: list[E] = []
            while self._letters and len(events) < at_most:
                letter = self._letters.popleft()
                self._unread[letter.lane] -= 1
                self._bytes[letter.lane] -= letter.size_bytes
                if letter.key is not None:
                    del self._by_key[letter.key]
                events.append(letter.event)
            return events

    def dropped(self) -> dict[str, int]:
        """Return how many events each lane has dropped so far."""
        with self._lock:
            return {lane.value: count for lane, count in self._dropped.items()}

    def unread(self) -> dict[str, int]:
        """Return how many events of each lane wait to be taken."""
        with self._lock:
            return {lane.value: self._unread[lane] for lane in Lane}

    def _has_room(self, lane: Lane, more_bytes: int, more_events: int) -> bool:
        limit = LIMITS[lane]
        if more_bytes > 0 and self._bytes[lane] + more_bytes > limit.size_bytes:
            return False
        return self._unread[lane] + more_events <= limit.events


def feed(mailbox: Mailbox[Any], topics: Topics) -> Callable[[LinkEvent], None]:
    """Return a link's inbox that puts events into `mailbox`, each in the lane of its topic."""

    def put(event: LinkEvent) -> None:
        if not isinstance(event, Incoming):
            mailbox.put(event)
            return
        if len(event.payload) > MAX_CHUNK_BYTES:
            event = Incoming(event.topic, b"", event.retained)
        # The topic counts, too: it may have 64 KiB.
        size_bytes = len(event.topic) + len(event.payload)
        mailbox.put(event, *_lane_of(event, topics), size_bytes)

    return put


def _lane_of(event: Incoming, topics: Topics) -> tuple[Lane, Hashable]:
    """Return the lane of a message, and the key by which it replaces older ones."""
    try:
        kind = topics.parse(event.topic).kind
    except BadTopic:
        return Lane.CONTROL, None  # the service counts it as garbage
    lane = _LANES.get(kind, Lane.CONTROL)
    if lane is Lane.LATEST:
        return lane, event.topic
    if kind is Kind.OPERATOR_REQUEST:
        return lane, (event.topic, event.payload)
    return lane, None
