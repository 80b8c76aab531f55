"""A client that keeps a `Mirror` current, and asks for others: `fleet top` and the web page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from broker.clock import Clock, Now
from broker.protocol.events import Connected, Disconnected, Incoming, LinkEvent
from broker.protocol.messages import (
    CURVES_AT_ONCE,
    AskCurves,
    AskList,
    AskStatus,
    AskWorkers,
    OperatorRequest,
)
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topic, Topics
from broker.system.address import text_of
from broker.system.machine import new_id, system_clock
from broker.system.settings import BrokerSettings
from coordinator.client.contact import Outage
from coordinator.client.mirror import Mirror
from coordinator.client.seen import Snapshot
from coordinator.client.session import Session
from coordinator.jobs import host_paging

HOSTS_EVERY_S: Final = 10.0
JOBS_EVERY_S: Final = 120.0
AGAIN_S: Final = 5.0  # after a list that did not come
SETTLE_S: Final = 0.3  # from a change of presence to asking how the coordinator takes it
A_HOST_S: Final = 0.002  # longer: of thousands there is always one that comes or goes
TIMEOUT_S: Final = 15.0


@dataclass(slots=True)
class _Load:
    """A list that comes page by page."""

    name: str
    every_s: float
    next_s: float = 0.0
    under_way: bool = False
    rows: list[dict[str, Any]] = field(default_factory=list)


class Watcher(Session):
    """Follows the fleet. `on_change` is called on the watcher's thread after each batch."""

    def __init__(
        self,
        settings: BrokerSettings,
        on_change: Callable[[], None] = lambda: None,
        clock: Clock = system_clock,
    ) -> None:
        """Prepare; `start` connects.

        Raises `ConfigError` for a connection that is not safe, or an identity that does not hold.
        """
        super().__init__(settings, "live", Topics(settings.topic_root).for_watcher(), clock)
        self.address = text_of(self.addresses)
        self.outage: Outage | None = None  # as of the last turn; any thread may read it
        self._on_change = on_change
        self._mirror = Mirror()
        self._told_version = 0
        self._loads = {
            "jobs": _Load("jobs", JOBS_EVERY_S),
            "workers": _Load("workers", HOSTS_EVERY_S),
        }
        self._knows_hosts = False
        self._lacks_curves = True
        self._session = ""

    def start(self) -> None:
        """Connect, and go on trying."""
        super().start()
        self.outage = self._contact.outage(self._clock().mono_s)

    @property
    def version(self) -> int:
        """What `snapshot().version` would be; it costs nothing to ask."""
        return self._mirror.version

    def snapshot(self) -> Snapshot:
        """Return what is known now; any thread may."""
        with self._lock:
            return self._mirror.snapshot()

    def refresh(self) -> None:
        """Ask for the hosts again soon, since something was done to one; any thread may."""
        hosts = self._loads["workers"]
        hosts.next_s = min(hosts.next_s, self._clock().mono_s)

    def ask(self, request: OperatorRequest, timeout_s: float = TIMEOUT_S) -> Future[Any]:
        """Ask the coordinator, as `send`."""
        return self.send(request, timeout_s)

    def on_link(self, event: Connected | Disconnected, now: Now) -> None:
        """Ask for everything anew on a new connection."""
        if isinstance(event, Connected):
            self._reload(now)
        else:
            self._mirror.doubt(now)

    def on_message(self, topic: Topic, event: Incoming, now: Now) -> None:
        """Take it into the mirror."""
        if self._mirror.apply(topic, event.payload, now, retained=event.retained):
            self._follow(topic, now)

    def on_turn(self, events: Sequence[LinkEvent | None], now: Now) -> None:
        """Ask for what is due, and tell of what is new."""
        self._load(now)
        with self._lock:
            outage = self._contact.outage(now.mono_s)
        changed = outage != self.outage or self._mirror.version != self._told_version
        self.outage, self._told_version = outage, self._mirror.version
        if changed or any(not isinstance(event, Incoming) for event in events):
            self._on_change()

    def _follow(self, topic: Topic, now: Now) -> None:
        """Ask how the coordinator takes what has just been heard."""
        if topic.kind is Kind.STATUS:
            self._ask_hosts_soon(now)
        elif topic.kind is Kind.SUMMARY:
            summary = self._mirror.summary
            if summary and summary.paused is not bool(self._mirror.status.get("paused")):
                self._ask_hosts_soon(now)  # the answer tells who did it
        elif topic.kind is Kind.COORDINATOR_STATUS:
            coordinator = self._mirror.coordinator
            session = coordinator.session if coordinator and not self.is_offline() else ""
            if session not in {"", self._session}:
                self._session = session
                self._reload(now)

    def _ask_hosts_soon(self, now: Now) -> None:
        hosts = self._loads["workers"]
        soon_s = SETTLE_S + A_HOST_S * len(self._mirror.hosts)
        hosts.next_s = min(hosts.next_s, now.mono_s + soon_s)

    def _reload(self, now: Now) -> None:
        self._knows_hosts, self._lacks_curves = False, True
        for load in self._loads.values():
            load.next_s = now.mono_s

    def _load(self, now: Now) -> None:
        for load in self._loads.values():
            if self.connected and not load.under_way and load.next_s <= now.mono_s:
                load.under_way, load.rows = True, []
                load.next_s = now.mono_s + load.every_s
                if load.name == "workers":
                    load.next_s += A_HOST_S * len(self._mirror.hosts)
                self._next_page(load, 0)
                if load.name == "workers":
                    self.ask(AskStatus(id=new_id())).add_done_callback(self._on_answer)

    def _next_page(self, load: _Load, offset: int) -> None:
        request: OperatorRequest
        if load.name == "jobs":
            if offset == 0:
                with self._lock:
                    self._mirror.expect_jobs()
            request = AskList(id=new_id(), offset=offset)
        else:
            # What a host is, it says itself when that changes: once is enough.
            request = AskWorkers(id=new_id(), offset=offset, limit=500, brief=self._knows_hosts)
        self.ask(request).add_done_callback(lambda done: self._on_page(load, done))

    def _on_page(self, load: _Load, done: Future[Any]) -> None:
        if done.exception() is not None:
            load.under_way = False
            load.next_s = min(load.next_s, self._clock().mono_s + AGAIN_S)
            return
        page = done.result()
        load.rows += host_paging.whole(page) if load.name == "workers" else page[load.name]
        if page["next"] is not None:
            self._next_page(load, page["next"])
            return
        load.under_way = False
        with self._lock:
            if load.name == "jobs":
                self._mirror.load_jobs(load.rows)
                begun = self._mirror.begun() if self._lacks_curves else []
            else:
                self._mirror.load_hosts(load.rows)
                self._knows_hosts = True
        if load.name == "jobs":
            self._lacks_curves = False
            self._next_curves(begun)
        self._on_change()

    def _next_curves(self, job_ids: list[str]) -> None:
        """Ask for curves, some at a time: what was told before this client heard of it."""
        if job_ids:
            now, later = job_ids[:CURVES_AT_ONCE], job_ids[CURVES_AT_ONCE:]
            asked = self.ask(AskCurves(id=new_id(), jobs=tuple(now)))
            asked.add_done_callback(lambda done: self._on_curves(later, done))

    def _on_curves(self, later: list[str], done: Future[Any]) -> None:
        if done.exception() is not None:
            self._lacks_curves = True  # with the next list of jobs
            return
        with self._lock:
            self._mirror.load_curves(done.result()["curves"])
        self._on_change()
        self._next_curves(later)

    def _on_answer(self, done: Future[Any]) -> None:
        if done.exception() is None:
            with self._lock:
                self._mirror.load_status(done.result())
            self._on_change()
