"""A client that keeps a `Mirror` current, and asks for others: `fleet top` and the web page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, Literal

from broker.clock import Clock, Now
from broker.errors import FleetError
from broker.protocol import messages as m
from broker.protocol.link_events import Connected, Disconnected, Incoming, LinkEvent
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topic, Topics
from broker.system.address import text_of
from broker.system.machine import new_id, system_clock
from broker.system.settings import BrokerSettings
from coordinator.client.contact import Outage
from coordinator.client.mirror import Mirror, Snapshot
from coordinator.client.session import Session

HOSTS_EVERY_S: Final = 10.0
JOBS_EVERY_S: Final = 120.0
AGAIN_S: Final = 5.0  # after a list that did not come
SETTLE_S: Final = 0.3  # from a change of presence to asking how the coordinator takes it
A_HOST_S: Final = 0.002  # longer: of thousands there is always one that comes or goes
TIMEOUT_S: Final = 15.0
_List = Literal["hosts", "jobs"]


class Watcher(Session):
    """Follows the fleet. `on_change` is called after each batch, on a thread of the watcher's.

    One thread takes what is heard; another asks for the lists when they are due.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        on_change: Callable[[], None] = lambda: None,
        clock: Clock = system_clock,
    ) -> None:
        """Prepare; `start` connects.

        Raises `ConfigError` for a connection that is not safe, or an identity that does not hold.
        """
        topics = Topics(settings.topic_root).for_watcher()
        super().__init__(settings, "live", topics, clock, TIMEOUT_S)
        self.address = text_of(self.addresses)
        self.outage: Outage | None = None  # as of the last turn; any thread may read it
        self._on_change = on_change
        self._mirror = Mirror()
        self._told_version = 0
        self._due_s: dict[_List, float] = {"hosts": 0.0, "jobs": 0.0}
        self._is_due = threading.Event()
        self._loader = threading.Thread(target=self._load, name="fleet-lists", daemon=True)
        self._knows_hosts = False
        self._lacks_curves = True
        self._session = ""

    def start(self) -> None:
        """Connect, and go on trying."""
        super().start()
        self._loader.start()
        self.outage = self._contact.outage(self._clock().mono_s)

    def stop(self) -> None:
        """Disconnect; whoever waits for an answer is told."""
        super().stop()
        self._is_due.set()

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
        self._ask_hosts_by(self._clock().mono_s)

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
        """Have the lists asked for that are due, and tell of what is new."""
        if self.connected and min(self._due_s.values()) <= now.mono_s:
            self._is_due.set()
        with self._lock:
            outage = self._contact.outage(now.mono_s)
        changed = outage != self.outage or self._mirror.version != self._told_version
        self.outage, self._told_version = outage, self._mirror.version
        if changed or any(not isinstance(event, Incoming) for event in events):
            self._on_change()

    def _follow(self, topic: Topic, now: Now) -> None:
        """Ask how the coordinator takes what has just been heard."""
        soon_s = now.mono_s + SETTLE_S + A_HOST_S * len(self._mirror.hosts)
        if topic.kind is Kind.STATUS:
            self._ask_hosts_by(soon_s)
        elif topic.kind is Kind.SUMMARY:
            summary = self._mirror.summary
            if summary and summary.paused is not bool(self._mirror.status.get("paused")):
                self._ask_hosts_by(soon_s)  # the answer tells who did it
        elif topic.kind is Kind.COORDINATOR_STATUS:
            status = self._mirror.coordinator
            if status and status.state == "online" and status.session != self._session:
                self._session = status.session
                self._reload(now)

    def _ask_hosts_by(self, at_s: float) -> None:
        self._due_s["hosts"] = min(self._due_s["hosts"], at_s)

    def _reload(self, now: Now) -> None:
        self._knows_hosts, self._lacks_curves = False, True
        self._due_s = {"hosts": now.mono_s, "jobs": now.mono_s}

    def _load(self) -> None:
        loads: dict[_List, tuple[float, Callable[[], None]]] = {
            "hosts": (HOSTS_EVERY_S, self._load_hosts),
            "jobs": (JOBS_EVERY_S, self._load_jobs),
        }
        while self._is_due.wait() and not self._stopping.is_set():
            self._is_due.clear()
            for name, (every_s, load) in loads.items():
                now_s = self._clock().mono_s
                if self._due_s[name] > now_s:
                    continue
                self._due_s[name] = now_s + every_s + A_HOST_S * len(self._mirror.hosts)
                try:
                    load()
                except FleetError:
                    self._knows_hosts, self._lacks_curves = False, True
                    again_s = self._clock().mono_s + AGAIN_S
                    self._due_s[name] = min(self._due_s[name], again_s)
                self._on_change()

    def _load_hosts(self) -> None:
        # What a host is, it says itself when that changes: once on each connection is enough.
        brief, self._knows_hosts = self._knows_hosts, True
        rows = self.list_workers(brief=brief)
        with self._lock:
            self._mirror.load_hosts(rows)
        status = self.ask(m.AskStatus(id=new_id()))
        with self._lock:
            self._mirror.load_status(status)

    def _load_jobs(self) -> None:
        lacks_curves, self._lacks_curves = self._lacks_curves, False
        with self._lock:
            self._mirror.expect_jobs()
        rows = self.list_jobs()
        with self._lock:
            self._mirror.load_jobs(rows)
            begun = self._mirror.begun() if lacks_curves else []
        self._on_change()
        # What was told before this client heard of it; it is asked for once on each connection.
        for start in range(0, len(begun), m.CURVES_AT_ONCE):
            some = tuple(begun[start : start + m.CURVES_AT_ONCE])
            found = self.ask(m.AskCurves(id=new_id(), jobs=some))
            with self._lock:
                self._mirror.load_curves(found["curves"])
