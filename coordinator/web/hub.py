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
from broker.protocol.messages import Heartbeat, OperatorRequest
from broker.protocol.topic_table import Role
from coordinator.client.contact import Outage
from coordinator.client.rows import Delta, Tables
from coordinator.client.seen import Snapshot
from coordinator.client.watcher import Watcher

log = logging.getLogger("fleet.web")

GAP_S: Final = 0.1
BEATS: Final = 240  # heartbeats of each host that its page can draw
MAX_HOSTS: Final = 2_000

T = TypeVar("T")


class Listeners(Generic[T]):
    """Who is told something, until they end that."""

    def __init__(self) -> None:
        """Begin with nobody."""
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


@dataclass(frozen=True, slots=True)
class Beat:
    """How a host fared at one moment (ms since the epoch)."""

    at_ms: int
    heartbeat: Heartbeat


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
        self.watcher = watcher(self.wake)
        self.seen = self.watcher.snapshot()
        self.tables.update(self.seen, clock())
        self.outage: Outage | None = self.watcher.outage

    @property
    def user(self) -> str:
        """Who this process is on the broker."""
        return self.watcher.user

    def is_operator(self) -> bool:
        """Whether the fleet lets this process give commands at all."""
        try:
            return Principal.parse(self.user).role is Role.OPERATOR
        except ConfigError:
            return False

    @property
    def paused(self) -> str:
        """Why no new jobs are given out, as far as it is known; empty when they are."""
        return self.seen.paused

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
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended before the watcher
                loop.call_soon_threadsafe(self._wake)

    def follow(self, listener: Callable[[News], object]) -> Callable[[], None]:
        """Tell `listener` what changes from now on; return what ends that.

        It does not look anew: what has changed since the page was made would be told to all others
        and never to this one.
        """
        return self._listeners.add(listener)

    def catch_up(self) -> None:
        """Look now, if anything has changed since; a page that is being made begins with it."""
        if self.watcher.version != self.seen.version or self.watcher.outage != self.outage:
            self.refresh()

    def refresh(self) -> None:
        """Look now, and tell everybody. It takes milliseconds for each thousand jobs."""
        now = self.clock()
        self._last_s = now.mono_s
        before, self.seen = self.seen, self.watcher.snapshot()
        self.outage = self.watcher.outage
        self._keep_beats(before)
        jobs, hosts = self.tables.update(self.seen, now)
        self._listeners.tell(News(self.seen, jobs, hosts))

    async def ask(self, request: OperatorRequest) -> Any:
        """Ask the coordinator. Raises as `Session.send` does.

        A command expires when nobody waits for its answer any more. A coordinator that comes to
        itself within a minute of that carries it out all the same, since it allows that much for
        clocks that differ; whoever gave it is told so.
        """
        return await asyncio.wrap_future(self.watcher.ask(request))

    def _wake(self) -> None:
        if self._due or self._loop is None:
            return
        self._due = True
        wait_s = self._last_s + GAP_S - self.clock().mono_s
        self._loop.call_later(max(0.0, wait_s), self._flush)

    def _flush(self) -> None:
        self._due = False
        self.refresh()

    def _keep_beats(self, before: Snapshot) -> None:
        now_ms = round(self.clock().wall_s * 1000)
        for name, host in self.seen.hosts.items():
            old = before.hosts.get(name)
            if host.heartbeat is None or (old and old.heartbeat is host.heartbeat):
                continue
            if name not in self.beats and len(self.beats) >= MAX_HOSTS:
                continue
            self.beats.setdefault(name, deque(maxlen=BEATS)).append(Beat(now_ms, host.heartbeat))
        for name in [name for name in self.beats if name not in self.seen.hosts]:
            del self.beats[name]
