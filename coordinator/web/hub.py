"""The one place where the fleet's news and the open pages meet, on the server's event loop.

The watcher's thread wakes it; it takes a snapshot, makes rows, and tells every open page what has
changed. Messages that come close together are told together: the first at once, the next ones after
`GAP_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from broker.clock import Clock
from broker.errors import ConfigError
from broker.protocol.acl import Principal
from broker.protocol.messages import OperatorRequest
from broker.protocol.topic_table import Role
from coordinator.client.contact import Outage
from coordinator.client.mirror import Snapshot
from coordinator.client.rows import Delta, Row, Tables
from coordinator.client.watcher import Watcher

log = logging.getLogger("fleet.web")

GAP_S: Final = 0.1
BEATS: Final = 240  # heartbeats of each host that its page can draw

MAX_HOSTS: Final = 2_000

T = TypeVar("T")
Beat = tuple[int, float | None, float | None, float | None, float | None]


class Listeners(Generic[T]):
    """Who is told something, until they end that."""

    def __init__(self) -> None:
        self._all: dict[object, Callable[[T], object]] = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, listener: Callable[[T], object]) -> Callable[[], None]:
        """Tell `listener` from now on; return what ends that."""
        key = object()
        self._all[key] = listener

        def end() -> None:
            self._all.pop(key, None)

        return end

    def tell(self, news: T) -> None:
        """Tell everybody; one that fails keeps nobody else from the news."""
        for key in list(self._all):
            if (listener := self._all.get(key)) is not None:  # one may end another
                try:
                    listener(news)
                except Exception:
                    log.exception("an open page could not be told what has changed")


@dataclass(frozen=True, slots=True)
class News:
    """What an open page is told."""

    seen: Snapshot
    jobs: Delta
    hosts: Delta


class Hub:
    """The fleet, for pages. Everything but `wake` belongs to the event loop's thread."""

    def __init__(self, watcher: Callable[[Callable[[], None]], Watcher], clock: Clock) -> None:
        """Prepare; `start` begins. `watcher(wake)` makes the connection to the fleet."""
        self.clock = clock
        self.tables = Tables()
        self.beats: dict[str, deque[Beat]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due = False
        self._last_s = 0.0
        self._listeners = Listeners[News]()
        # It does not look anew for who follows: what has changed since a page was made would be
        # told to all others and never to that one.
        self.follow = self._listeners.add
        self.watcher = watcher(self.wake)
        self.seen = self.watcher.snapshot()
        self.tables.update(self.seen, clock())
        self.outage: Outage | None = self.watcher.outage

    def is_operator(self) -> bool:
        """Whether the fleet lets this process give commands at all."""
        try:
            return Principal.parse(self.watcher.user).role is Role.OPERATOR
        except ConfigError:
            return False

    def epoch_ms(self, mono_s: float | None) -> int | None:
        """Return a time of the monotonic clock in milliseconds since the epoch."""
        now = self.clock()
        return None if mono_s is None else round((now.wall_s - (now.mono_s - mono_s)) * 1000)

    def start(self) -> None:
        """Begin to listen, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self.watcher.start()

    def wake(self) -> None:
        """Something has changed; any thread may say so."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended before the watcher
                self._loop.call_soon_threadsafe(self._wake)

    def catch_up(self) -> None:
        """Look now, if anything has changed since; a page that is being made begins with it."""
        if self.watcher.version != self.seen.version or self.watcher.outage != self.outage:
            self.refresh()

    def refresh(self) -> None:
        """Look now, and tell everybody. It takes milliseconds for each thousand jobs."""
        now = self.clock()
        self._due, self._last_s = False, now.mono_s
        before, self.seen = self.seen, self.watcher.snapshot()
        self.outage = self.watcher.outage
        jobs, hosts = self.tables.update(self.seen, now)
        self._keep_beats(before)
        self._listeners.tell(News(self.seen, jobs, hosts))

    async def ask(self, request: OperatorRequest) -> Any:
        """Ask the coordinator. Raises as `Session.send` does.

        A command expires when nobody waits for its answer any more. A coordinator that comes to
        itself within a minute of that carries it out all the same, since it allows that much for
        clocks that differ; whoever gave it is told so.
        """
        return await asyncio.wrap_future(self.watcher.send(request))

    def _wake(self) -> None:
        if not self._due and self._loop is not None:
            self._due = True
            wait_s = self._last_s + GAP_S - self.clock().mono_s
            self._loop.call_later(max(0.0, wait_s), self.refresh)

    def _keep_beats(self, before: Snapshot) -> None:
        """Keep how each host fares whose heartbeat is new; its row is made of that."""
        for name in self.beats.keys() - self.seen.hosts.keys():
            del self.beats[name]
        now_ms = round(self.clock().wall_s * 1000)
        for name, host in self.seen.hosts.items():
            old = before.hosts.get(name)
            is_known = host.heartbeat is None or (old and old.heartbeat is host.heartbeat)
            if not is_known and (name in self.beats or len(self.beats) < MAX_HOSTS):
                beats = self.beats.setdefault(name, deque(maxlen=BEATS))
                beats.append(beat_of(now_ms, self.tables.hosts.rows[name]))


def beat_of(at_ms: int, row: Row) -> Beat:
    """Return a moment, and the use of CPU, RAM, GPU and VRAM, in percent."""
    ram, vram = (
        100.0 * row[f"{of}_used"] / row[f"{of}_total"] if row[f"{of}_used"] is not None else None
        for of in ("ram", "vram")
    )
    return (at_ms, row["cpu"], ram, row["gpu"], vram)
