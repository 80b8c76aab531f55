"""The one inbox of a service: bounded, in arrival order, read by the one thread that decides.

An event with a key takes the place of an unread one with the same key: a newer heartbeat makes an
older one worthless, and a question that is repeated is to be answered once. What happens when it is
full depends on the lane. `LATEST` events all have a key: of a host whose birth was dropped another
is asked for. `BULK` (chunks, log lines) are dropped: chunks are asked for again. `CONTROL` is left
to the sender's retry, and so is `PATIENT`, for which nobody waits. All four are bounded by their
bytes as well. `LOCAL` events come from this process itself, which bounds them, and are never
dropped.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

from broker.client.connection import Inbox
from broker.protocol.events import Incoming, LinkEvent
from broker.protocol.messages import MAX_CHUNK_BYTES

# In which lane of a mailbox what a link tells waits, and what it takes the place of there.

# As we encode them. Nobody waits for what comes of these, and another report follows soon.
_PATIENT: Final = (b'{"v":1,"type":"accepted",', b'{"v":1,"type":"started",')


def lane_of(event: LinkEvent) -> tuple[Lane, str | None]:
    """Return the mailbox lane of a link event, and the key by which it replaces older ones."""
    if not isinstance(event, Incoming):
        return Lane.LOCAL, None
    topic = event.topic
    leaf = topic.rsplit("/", 1)[-1]
    if leaf in {"heartbeat", "capability", "progress"}:
        return Lane.LATEST, topic
    if leaf == "response" and event.payload.startswith(_PATIENT):
        return Lane.PATIENT, None
    if leaf == "log" or "/chunk/" in topic:
        return Lane.BULK, None
    if leaf == "request" and "/operator/" in topic:
        # Whoever waits asks again and again; a signed command is another each time.
        return Lane.CONTROL, f"{topic} {hash(event.payload)}"
    return Lane.CONTROL, None


def feed(mailbox: Mailbox[Any]) -> Inbox:
    """Return a function that puts link events into `mailbox`, each in its lane."""

    def put(*events: LinkEvent) -> None:
        mailbox.put_all([_letter(event) for event in events])

    return put


def _letter(event: LinkEvent) -> Letter[LinkEvent]:
    if not isinstance(event, Incoming):
        return event, *lane_of(event), 0
    if len(event.payload) > MAX_CHUNK_BYTES:
        event = Incoming(event.topic, event.payload[:0], event.retained)
    # A topic may have 64 KiB: beside a few bytes of payload it is what counts.
    return event, *lane_of(event), len(event.topic) + len(event.payload)


E = TypeVar("E")


class Lane(StrEnum):
    """How an event is treated when the mailbox is full."""

    LOCAL = "local"
    CONTROL = "control"
    PATIENT = "patient"
    LATEST = "latest"
    BULK = "bulk"


Letter = tuple[E, Lane, str | None, int]
"""An event, its lane, its key if it has one, and its size in bytes."""

# Of 20,000 hosts: what a broker has retained of each, and the birth that follows.
DEFAULT_LIMITS: Final[Mapping[Lane, int]] = {
    Lane.CONTROL: 50_000,
    Lane.PATIENT: 50_000,
    Lane.LATEST: 60_000,
    Lane.BULK: 4096,
}
# Of CONTROL: ten thousand reports that bear their bundles. Of LATEST: births of 16,000 hosts, 16 KB
# each, all of them unread.
LIMITS_BYTES: Final[Mapping[Lane, int]] = {
    Lane.CONTROL: 128 * 1024 * 1024,
    Lane.PATIENT: 16 * 1024 * 1024,
    Lane.LATEST: 256 * 1024 * 1024,
    Lane.BULK: 48 * 1024 * 1024,
}


class _Cell(Generic[E]):
    __slots__ = ("event", "key", "lane", "size_bytes")

    def __init__(self, event: E, lane: Lane, key: str | None, size_bytes: int) -> None:
        self.event = event
        self.lane = lane
        self.key = key
        self.size_bytes = size_bytes


class Mailbox(Generic[E]):
    """A bounded inbox. Any thread may `put`; one thread calls `take`."""

    def __init__(self, limits: Mapping[Lane, int] = DEFAULT_LIMITS) -> None:
        """Set how many unread events each lane may hold."""
        self._limits = limits
        self._cells: deque[_Cell[E]] = deque()
        self._unread: Counter[Lane] = Counter()
        self._bytes: Counter[Lane] = Counter()
        self._latest: dict[str, _Cell[E]] = {}
        self._dropped: Counter[Lane] = Counter()
        self._gathers = False  # the reader waits for more than it has
        # A condition's own `with` can be left locked by a Ctrl-C; a lock's cannot.
        self._lock = threading.RLock()
        self._ready = threading.Condition(self._lock)

    def put(
        self, event: E, lane: Lane = Lane.LOCAL, key: str | None = None, size_bytes: int = 0
    ) -> bool:
        """Add an event, or put it in the place of an unread one; return whether it was taken.

        The size is for the lanes of `LIMITS_BYTES`.
        """
        with self._lock:
            taken = self._add(event, lane, key, size_bytes)
            self._wake()
        return taken

    def put_all(self, letters: Iterable[Letter[E]]) -> None:
        """Add what came together, as `put` does each, and wake the reader once."""
        with self._lock:
            for event, lane, key, size_bytes in letters:
                self._add(event, lane, key, size_bytes)
            self._wake()

    def take(self, timeout_s: float | None, at_most: int = 1000, gather_s: float = 0.0) -> list[E]:
        """Return up to `at_most` events in arrival order; empty when none came in `timeout_s`.

        Where `LATEST` and `PATIENT` events alone have come, more are waited for, `gather_s` at
        most, so that a turn takes in several; an event of another lane ends that wait at once.
        """
        with self._lock:
            if not self._cells:
                self._ready.wait(timeout_s)
            if gather_s and self._cells and not self._is_urgent():
                self._gathers = True
                self._ready.wait(gather_s if timeout_s is None else min(gather_s, timeout_s))
                self._gathers = False
            return [self._pop() for _ in range(min(at_most, len(self._cells)))]

    def dropped(self) -> dict[str, int]:
        """Return how many events each lane has dropped so far."""
        with self._lock:
            return {lane.value: count for lane, count in self._dropped.items()}

    def unread(self) -> dict[str, int]:
        """Return how many events of each lane wait to be taken."""
        with self._lock:
            return {lane.value: self._unread[lane] for lane in Lane}

    def _add(self, event: E, lane: Lane, key: str | None, size_bytes: int) -> bool:
        unread = self._latest.get(key) if key is not None else None
        if unread is not None:
            return self._replace(unread, event, size_bytes)
        limit = self._limits.get(lane)
        is_full = limit is not None and self._unread[lane] >= limit
        if is_full or not self._has_room(lane, size_bytes):
            self._dropped[lane] += 1
            return False
        cell = _Cell(event, lane, key, size_bytes)
        if key is not None:
            self._latest[key] = cell
        self._cells.append(cell)
        self._unread[lane] += 1
        self._bytes[lane] += size_bytes
        return True

    def _replace(self, cell: _Cell[E], event: E, size_bytes: int) -> bool:
        more_bytes = size_bytes - cell.size_bytes
        if more_bytes > 0 and not self._has_room(cell.lane, more_bytes):
            self._dropped[cell.lane] += 1
            return False
        self._bytes[cell.lane] += more_bytes
        cell.event, cell.size_bytes = event, size_bytes
        return True

    def _has_room(self, lane: Lane, more_bytes: int) -> bool:
        most_bytes = LIMITS_BYTES.get(lane)
        return most_bytes is None or self._bytes[lane] + more_bytes <= most_bytes

    def _is_urgent(self) -> bool:
        return len(self._cells) > self._unread[Lane.LATEST] + self._unread[Lane.PATIENT]

    def _wake(self) -> None:
        if not self._gathers or self._is_urgent():
            self._ready.notify()

    def _pop(self) -> E:
        cell = self._cells.popleft()
        self._unread[cell.lane] -= 1
        self._bytes[cell.lane] -= cell.size_bytes
        if cell.key is not None:
            self._latest.pop(cell.key, None)
        return cell.event
